package app

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// floodSettings are those of the shipped manifests, with bounds that a test reaches.
var floodSettings = []string{
	"--server.maxHeaderBytes=16384", "--server.maxConnections=64", "--server.maxConnectionsPerAddress=16", "--server.maxBodies=4",
	"--auth.enabled=true", "--auth.tokenReview=false",
	// Nothing in these tests ends by a timeout.
	"--server.readTimeout=1h",
}

// from connects to the env from an address of this machine.
func (s *env) from(t *testing.T, address string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ended reports whether the server closes a connection within this time.
func ended(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, conn)
	return !os.IsTimeout(err)
}

// TestFloodOfConnections attacks with connections that ask for nothing. Others are
// served while attackers hold what they can get, which is bounded.
func TestFloodOfConnections(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "reader", "read")
	body := strings.Repeat("x", 9000)
	post := func(path, headers string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: g\r\n" + headers + "Content-Length: 1000000\r\n\r\n" + body
	}
	one := func(int) string { return "127.0.0.2" }
	many := func(i int) string { return fmt.Sprintf("127.0.%d.%d", 1+i/200, 1+i%200) }
	cases := map[string]struct {
		reason, sent string
		from         func(int) string
		most         int
	}{
		"Silent":             {reason: "one address may hold 16 connections", from: one, most: 16},
		"HeadsOfOneAddress":  {reason: "a head that does not end is no reason to stay", sent: "GET / HTTP/1.1\r\nX-A: " + body, from: one, most: 16},
		"HeadsOfMany":        {reason: "all addresses together may hold 64", sent: "GET / HTTP/1.1\r\nX-A: " + body, from: many, most: 64},
		"LongHeads":          {reason: "a head above 16 KiB is refused before its end", sent: "GET / HTTP/1.1\r\nX-A: " + body + body, from: many, most: 0},
		"BodiesWithoutKey":   {reason: "who has no key is refused before the body", sent: post("/api/v1/preview", ""), from: many, most: 0},
		"BodiesWithWrongKey": {reason: "who has a wrong key is refused before the body", sent: post("/api/v1/preview", "Authorization: Bearer wrong\r\n"), from: many, most: 0},
		"BodiesOfEvents":     {reason: "events need a key, or a signature that can be checked", sent: post("/api/v1/events", "Webhook-Signature: v1,AAAA\r\n"), from: many, most: 0},
		"BodiesToNowhere":    {reason: "a path that does not exist takes no body", sent: post("/nowhere", ""), from: many, most: 0},
		"BodiesOfGet":        {reason: "a GET has no body", sent: strings.Replace(post("/health", ""), "POST", "GET", 1), from: many, most: 0},
		"Forms":              {reason: "a form is a body as any other", sent: post("/api/v1/preview", "Content-Type: multipart/form-data; boundary=b\r\n"), from: many, most: 0},
		"BodiesWithKey":      {reason: "4 bodies may arrive at once", sent: post("/api/v1/preview", "Authorization: Bearer "+key+"\r\n"), from: many, most: 4},
		"ChunksWithKey": {reason: "a body of unknown length counts as one that is long", from: many, most: 4, sent: "POST /api/v1/preview HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer " + key +
			"\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n" + body},
		"LargeBodies": {reason: "a body that is said to be too large is not waited for", from: many, most: 0,
			sent: strings.Replace(post("/api/v1/preview", "Authorization: Bearer "+key+"\r\n"), "1000000", "9000000", 1)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, append([]string{"--auth.keys=" + line}, floodSettings...)...)
			conns := make([]net.Conn, 150)
			for i := range conns {
				conns[i] = s.from(t, tc.from(i))
				_, _ = io.WriteString(conns[i], tc.sent)
			}
			eventually(t, tc.reason, func() bool {
				held := 0
				for i, conn := range conns {
					if conn == nil {
						continue
					}
					if ended(conn, time.Millisecond) {
						conns[i] = nil
						continue
					}
					held++
				}
				return held <= tc.most
			})
			// The attackers hold what they can get.
			if r := s.do(http.MethodGet, "/api/v1/clusters", "", "Authorization", "Bearer "+key); r.StatusCode != http.StatusOK {
				t.Errorf("another client during the flood: %s %s", r.Status, r.body)
			}
			if r := s.do(http.MethodPost, "/api/v1/preview", "#"+strings.Repeat(" ", 20_000), "Authorization", "Bearer "+key); r.StatusCode != http.StatusUnprocessableEntity { // it declares nothing
				t.Errorf("the body of another client during the flood: %s %s", r.Status, r.body)
			}
		})
	}
}

// TestRefusedBodies has clients that are refused read why, and their next request is
// not taken from what they sent before.
func TestRefusedBodies(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "reader", "read")
	s := start(t, append([]string{"--auth.keys=" + line}, floodSettings...)...)
	next := "GET /api/v1/clusters HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer " + key + "\r\n\r\n"
	filler := strings.Repeat("x", 100_000-len(next))
	cases := map[string]struct {
		reason, request string
		want            []int
	}{
		"Long":       {reason: "the rest of a body is no request", request: "POST /api/v1/preview HTTP/1.1\r\nHost: g\r\nContent-Length: 100000\r\n\r\n" + filler + next, want: []int{401}},
		"LongGet":    {reason: "nor is the body of a GET", request: "GET /health/live HTTP/1.1\r\nHost: g\r\nContent-Length: 100000\r\n\r\n" + filler + next, want: []int{200}},
		"Chunks":     {reason: "nor are chunks", request: "POST /api/v1/preview HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n" + filler + next, want: []int{401}},
		"ChunksGet":  {reason: "nor are chunks of a GET", request: "GET /health/live HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + next, want: []int{200}},
		"Short":      {reason: "a short body that is there does not end the connection", request: "POST /api/v1/preview HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\n\r\nhello" + next, want: []int{401, 200}},
		"NoBody":     {reason: "a request without a body does not either", request: "GET /health/live HTTP/1.1\r\nHost: g\r\n\r\n" + next, want: []int{200, 200}},
		"Taken":      {reason: "a long body that is taken does not either", request: "POST /api/v1/preview HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 20000\r\n\r\n#" + strings.Repeat(" ", 19_999) + next, want: []int{422, 200}},
		"TakenChunk": {reason: "nor do chunks that are taken", request: "POST /api/v1/preview HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer " + key + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n#    \r\n0\r\n\r\n" + next, want: []int{422, 200}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := s.raw(tc.request)
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%s: answered with %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestStreamsLeaveRoom opens more streams than there may be connections: streams have
// bounds of their own, and none is displaced.
func TestStreamsLeaveRoom(t *testing.T) {
	t.Parallel()
	s := start(t, "--server.maxConnections=16", "--server.maxConnectionsPerAddress=16", "--stream.maxClientsPerAddress=1000")
	var streams []*bufio.Reader
	for range 40 {
		conn := s.from(t, "127.0.0.1")
		_, _ = io.WriteString(conn, "GET /api/v1/stream HTTP/1.1\r\nHost: g\r\n\r\n")
		reader := bufio.NewReader(conn)
		if res, err := reader.ReadString('\n'); err != nil || !strings.Contains(res, "200") {
			t.Fatalf("stream: %q %v", res, err)
		}
		streams = append(streams, reader)
	}
	if r := s.get("/api/v1/clusters"); r.StatusCode != http.StatusOK {
		t.Errorf("beside the streams: %s", r.Status)
	}
	s.app.hub.Close()
	for _, stream := range streams {
		if rest, err := io.ReadAll(stream); err != nil || !strings.Contains(string(rest), "event: synced") {
			t.Errorf("a stream ended early: %v", err)
		}
	}
}

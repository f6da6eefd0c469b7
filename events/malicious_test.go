package events_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
)

// raw sends bytes unchanged, and returns the statuses of the answers until the server closes the
// connection.
func raw(t *testing.T, url, request string) (statuses []int) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	reader := bufio.NewReader(conn)
	for {
		res, err := http.ReadResponse(reader, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		statuses = append(statuses, res.StatusCode)
	}
}

const binaryHead = "POST / HTTP/1.1\r\nHost: f\r\nCe-Specversion: 1.0\r\nCe-Type: t\r\nCe-Source: /s\r\nCe-Id: 1\r\nCe-Kind: Machine\r\nCe-Name: vm\r\n"

// TestHeaderSmuggling sends events that a proxy and the function could interpret differently. The
// function handles none of them.
func TestHeaderSmuggling(t *testing.T) {
	t.Parallel()
	var handled atomic.Int32
	url, log, _ := serve(t, func(context.Context, event.Event) (*event.Event, error) {
		handled.Add(1)
		return nil, nil
	})
	another := "POST / HTTP/1.1\r\nHost: f\r\n"
	cases := map[string]struct {
		reason, request string
		want            int
	}{
		"Twice":        {reason: "the event has two names", request: binaryHead + "Ce-Name: other\r\nContent-Length: 0\r\n\r\n", want: 400},
		"TwiceInCases": {reason: "the event has two names in different cases", request: binaryHead + "ce-name: other\r\nContent-Length: 0\r\n\r\n", want: 400},
		"NoName":       {reason: "a header without an attribute name", request: binaryHead + "Ce-: x\r\nContent-Length: 0\r\n\r\n", want: 400},
		"OddName":      {reason: "an invalid attribute name", request: binaryHead + "Ce-Na_me: x\r\nContent-Length: 0\r\n\r\n", want: 400},
		"BareCR":       {reason: "a line break within a value", request: binaryHead + "Ce-Subject: a\rCe-Name: other\r\nContent-Length: 0\r\n\r\n", want: 400},
		"Space":        {reason: "a space before the colon", request: binaryHead + "Ce-Subject : a\r\nContent-Length: 0\r\n\r\n", want: 400},
		"Null":         {reason: "a null byte in a value", request: binaryHead + "Ce-Subject: a\x00b\r\nContent-Length: 0\r\n\r\n", want: 400},
		"TwoLengths":   {reason: "the request has two lengths", request: binaryHead + "Content-Length: 0\r\nContent-Length: 30\r\n\r\n" + another, want: 400},
		"TwoEncodings": {reason: "an unknown transfer encoding", request: binaryHead + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", want: 501},
		"Contradiction": {reason: "header and body have different types", want: 400,
			request: binaryHead + "Content-Type: application/cloudevents+json\r\nContent-Length: 64\r\n\r\n" + `{"specversion":"1.0","type":"other","source":"/s","id":"1"}     `},
		"ControlInBody": {reason: "a line break within an attribute", want: 400,
			request: another + "Content-Type: application/cloudevents+json\r\nContent-Length: 84\r\n\r\n" + `{"specversion":"1.0","type":"t","source":"/s","id":"1","name":"a\nlevel=error"}     `},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := raw(t, url, tc.request); len(got) == 0 || got[0] != tc.want {
				t.Errorf("%s: answered with %v, want %d; log:\n%s", tc.reason, got, tc.want, log)
			}
		})
	}
	if n := handled.Load(); n != 0 {
		t.Errorf("%d of them were handled", n)
	}
	// Equal values in header and body are no contradiction.
	body := `{"specversion":"1.0","type":"t","source":"/s","id":"1","kind":"Machine","name":"vm","n":1}`
	headers := map[string]string{"Content-Type": "application/cloudevents+json", "Ce-Type": "t", "Ce-Name": "vm", "Ce-N": "1", "Ce-Time": "2026-01-01T00:00:00+00:00"}
	if got := post(t, url, headers, strings.NewReader(body)).StatusCode; got != http.StatusAccepted {
		t.Errorf("headers that equal the body: %d", got)
	}
}

// TestTransferEncoding has a request with a length and a chunked encoding. It counts as chunked (RFC
// 9112, section 6.3). Everything on Knative's path to a function parses HTTP with the same library, so
// a chunk is never data.
func TestTransferEncoding(t *testing.T) {
	t.Parallel()
	var data atomic.Pointer[string]
	url, _, _ := serve(t, func(_ context.Context, in event.Event) (*event.Event, error) {
		text := string(in.Data())
		data.Store(&text)
		return nil, nil
	})
	got := raw(t, url, binaryHead+"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
	if len(got) != 1 || got[0] != http.StatusAccepted || *data.Load() != "{}" {
		t.Errorf("answers %v", got)
	}
}

// TestOversizedEvents sends more than a function reads, with and without a length.
func TestOversizedEvents(t *testing.T) {
	t.Parallel()
	url, _, _ := serve(t, func(context.Context, event.Event) (*event.Event, error) { return nil, nil })
	large := strings.Repeat("x", 2<<20)
	if got := post(t, url, binaryHeaders, strings.NewReader(large)).StatusCode; got != http.StatusRequestEntityTooLarge {
		t.Errorf("with its length: %d", got)
	}
	if got := post(t, url, binaryHeaders, io.MultiReader(strings.NewReader(large))).StatusCode; got != http.StatusRequestEntityTooLarge {
		t.Errorf("in chunks: %d", got)
	}
	deep := `{"specversion":"1.0","type":"t","source":"/s","id":"1","data":` + strings.Repeat("[", 500_000)
	if got := post(t, url, map[string]string{"Content-Type": "application/cloudevents+json"}, strings.NewReader(deep)).StatusCode; got != http.StatusBadRequest {
		t.Errorf("nested deeply: %d", got)
	}
	if got := raw(t, url, binaryHead+"Ce-Subject: "+strings.Repeat("x", 128<<10)+"\r\n\r\n"); len(got) != 1 || got[0] != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header that is too large: %v", got)
	}
}

// TestLogInjection has an error and an attribute that contain line breaks.
func TestLogInjection(t *testing.T) {
	t.Parallel()
	url, log, stop := serve(t, func(ctx context.Context, _ event.Event) (*event.Event, error) {
		events.Report(ctx, "Creating\n{}", "done\n{\"level\":\"error\",\"message\":\"forged\"}\x1b[2J\u2028")
		return nil, events.Permanent(io.ErrUnexpectedEOF)
	})
	post(t, url, map[string]string{"Content-Type": "application/cloudevents+json"},
		strings.NewReader(`{"specversion":"1.0","type":"t","source":"/s","id":"1\n{\"level\":\"error\"}"}`))
	post(t, url, binaryHeaders, nil)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["message"] == "forged" || strings.ContainsAny(line, "\x1b\r\u2028") {
			t.Errorf("line %q: %v", line, err)
		}
	}
	if len(lines) != 2 {
		t.Errorf("%d lines for 2 requests:\n%s", len(lines), log)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("application/cloudevents+json", "Ce-Name", "vm", structured)
	f.Add("application/json", "Ce-", "x", "{}")
	f.Add("application/json", "Ce-Specversion", "1.0", "{}")
	f.Add("application/cloudevents+json", "Ce-Time", "x", `{"specversion":"0.3","type":"t","source":"s","id":"1","data_base64":"AA==","time":"2020-01-01T00:00:00Z"}`)
	f.Fuzz(func(t *testing.T, media, key, value, body string) {
		header := http.Header{"Content-Type": {media}}
		for k, v := range binaryHeaders {
			if k != "Content-Type" && media == "application/json" {
				header[k] = []string{v}
			}
		}
		header.Set(key, value)
		e, err := events.Read(t.Context(), header, io.NopCloser(strings.NewReader(body)))
		if err != nil {
			return
		}
		if e.Validate() != nil || events.CheckText(*e) != nil {
			t.Errorf("an invalid event: %s", e)
		}
		if ref, err := events.RefOf(*e); err == nil && strings.ContainsAny(ref.Path(), "\r\n\x00") {
			t.Errorf("path %q", ref.Path())
		}
	})
}

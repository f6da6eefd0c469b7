package app

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/tests/stand/browser"
)

// dial opens a connection to the gateway that has a minute for everything.
func (s *env) dial() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

// raw sends bytes as they are, and returns the statuses of the answers until the
// gateway closes the connection.
func (s *env) raw(request string) (statuses []int) {
	s.t.Helper()
	conn := s.dial()
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, request)
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

// TestHeaderSmuggling brings events that a proxy and the gateway could read
// differently. None comes to the Broker.
func TestHeaderSmuggling(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	key, line := keyLine(t, "ipam", "events")
	s := start(t, "--broker.sink="+b.URL, "--auth.keys="+line, "--server.readTimeout=2s")
	head := "POST /api/v1/events HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer " + key + "\r\n"
	binary := head + "Ce-Specversion: 1.0\r\nCe-Type: " + events.TypeWorkorderApproved + "\r\nCe-Source: /t\r\nCe-Id: 1\r\n"
	good := `{"uid":"u","generation":1,"by":"me"}`
	with := func(headers, body string) string {
		return binary + headers + "Content-Length: " + jsonNumber(int64(len(body))) + "\r\n\r\n" + body
	}
	event := approved("1", good)
	cases := map[string]struct {
		reason, request string
		want            int
	}{
		"Twice":         {reason: "approved or rejected", request: with("Content-Type: application/json\r\nCe-Type: io.vitistack.workorder.rejected\r\n", good), want: 400},
		"NoName":        {reason: "a header that names nothing", request: with("Content-Type: application/json\r\nCe-: x\r\n", good), want: 400},
		"TwoTypes":      {reason: "two media types", request: with("Content-Type: application/json\r\nContent-Type: application/cloudevents+json\r\n", event), want: 400},
		"Contradiction": {reason: "another event in the head than in the body", request: with("Content-Type: application/cloudevents+json\r\n", strings.Replace(event, "workorder.approved", "workorder.rejected", 1)), want: 400},
		"TwoLengths":    {reason: "which length counts", request: binary + "Content-Length: 2\r\nContent-Length: 36\r\n\r\n" + good, want: 400},
		"BadLength":     {reason: "no length", request: binary + "Content-Length: +36\r\n\r\n" + good, want: 400},
		"Packed":        {reason: "a body that becomes another one", request: with("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", good), want: 415},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := s.raw(tc.request); len(got) == 0 || got[0] != tc.want {
				t.Errorf("%s: answered with %v, want %d", tc.reason, got, tc.want)
			}
		})
	}
	// What is hidden behind such a length is not taken for another request.
	hidden := "GET /api/v1/clusters HTTP/1.1\r\nHost: g\r\n\r\n"
	for _, lengths := range []string{
		"Content-Length: 49\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\ncontent-length: 49\r\n\r\n0\r\n\r\n",
		"Content-Length: 44\r\nContent-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
	} {
		if got := s.raw(binary + lengths + hidden); len(got) != 1 || got[0] != http.StatusBadRequest {
			t.Errorf("%q: answered with %v", lengths, got)
		}
	}
	for _, text := range []string{"a\\nb", "\\u0000", "\\u001b[2J"} {
		if r := s.do(http.MethodPost, "/api/v1/events", strings.Replace(event, `"id":"1"`, `"id":"1`+text+`"`, 1), "Content-Type", structured, "Authorization", "Bearer "+key); r.StatusCode != http.StatusBadRequest {
			t.Errorf("id with %s: %s %s", text, r.Status, r.body)
		}
		if r := s.do(http.MethodPost, "/api/v1/events", "["+strings.Replace(event, `"id":"1"`, `"id":"1`+text+`"`, 1)+"]", "Content-Type", "application/cloudevents-batch+json", "Authorization", "Bearer "+key); r.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("id with %s in a batch: %s %s", text, r.Status, r.body)
		}
	}
	if ids := b.ids(); len(ids) != 0 {
		t.Errorf("at the broker: %v", ids)
	}
}

// TestOversizedEvents brings more than is read: said, unsaid, packed, and nested.
func TestOversizedEvents(t *testing.T) {
	t.Parallel()
	s := start(t, "--server.readTimeout=10s")
	large := strings.Repeat("x", 8<<20)
	if got := s.raw("POST /events HTTP/1.1\r\nHost: g\r\nContent-Length: 8388608\r\n\r\n" + large); len(got) != 1 || got[0] != http.StatusRequestEntityTooLarge {
		t.Errorf("with its length: %v", got)
	}
	if got := s.raw("POST /events HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n800000\r\n" + large + "\r\n0\r\n\r\n"); len(got) != 1 || got[0] != http.StatusRequestEntityTooLarge {
		t.Errorf("in chunks: %v", got)
	}
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 256 {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, path := range []string{"/events", "/api/v1/events", "/api/v1/preview", "/api/v1/session"} {
		if r := s.do(http.MethodPost, path, bomb.String(), "Content-Type", structured, "Content-Encoding", "gzip"); r.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("packed, to %s: %s", path, r.Status)
		}
	}
	if r := s.do(http.MethodPost, "/api/v1/import/prometheus", bomb.String(), "Content-Encoding", "gzip"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("packed metrics: %s", r.Status)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 200<<20 {
		t.Errorf("256 MiB of packed zeros took %d MiB", grown>>20)
	}
	if r := s.do(http.MethodPost, "/events", strings.Repeat("[", 500_000), "Content-Type", structured); r.StatusCode != http.StatusBadRequest {
		t.Errorf("nested deeply: %s", r.Status)
	}
}

// TestForgedEvents changes a signed event, as an attacker who has seen it can.
func TestForgedEvents(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	secret := standardwebhooks.Secret("0123456789abcdef0123456789abcdef")
	s := start(t, "--broker.sink="+b.URL, "--ingest.secrets=whsec_"+base64.StdEncoding.EncodeToString(secret))
	now := time.Now()
	good := `{"uid":"u","generation":1,"by":"me"}`
	event := approved("1", good)
	send := func(id string, at time.Time, body, signature string, headers ...string) reply {
		t.Helper()
		return s.do(http.MethodPost, "/api/v1/events", body, append([]string{standardwebhooks.HeaderID, id, standardwebhooks.HeaderTimestamp, jsonNumber(at.Unix()), standardwebhooks.HeaderSignature, signature}, headers...)...)
	}
	if r := send("m1", now, event, secret.Sign("m1", now, []byte(event)), "Content-Type", structured); r.StatusCode != http.StatusAccepted {
		t.Fatalf("signed: %s %s", r.Status, r.body)
	}
	if r := send("m1", now, event, secret.Sign("m1", now, []byte(event)), "Content-Type", structured); r.object(t)["duplicates"] != 1.0 {
		t.Errorf("replayed at once: %s %s", r.Status, r.body)
	}
	rejected := strings.Replace(event, "workorder.approved", "workorder.rejected", 1)
	binary := []string{"Content-Type", "application/json", "Ce-Specversion", "1.0", "Ce-Source", "/t", "Ce-Id", "2", "Ce-Type", "io.vitistack.workorder.approved"}
	soon := now.Add(time.Hour)
	for reason, r := range map[string]reply{
		"another event":                        send("m1", now, rejected, secret.Sign("m1", now, []byte(event)), "Content-Type", structured),
		"another message":                      send("m2", now, event, secret.Sign("m1", now, []byte(event)), "Content-Type", structured),
		"another time":                         send("m1", now.Add(time.Minute), event, secret.Sign("m1", now, []byte(event)), "Content-Type", structured),
		"from the future":                      send("m1", soon, event, secret.Sign("m1", soon, []byte(event)), "Content-Type", structured),
		"no signature":                         send("m1", now, event, "", "Content-Type", structured),
		"a signature of nothing":               send("m1", now, event, "v1,", "Content-Type", structured),
		"headers that are not signed":          send("m1", now, good, secret.Sign("m1", now, []byte(good)), binary...),
		"the same with another type of medium": send("m1", now, event, secret.Sign("m1", now, []byte(event)), binary...),
	} {
		if r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s %s", reason, r.Status, r.body)
		}
	}
	if diff := cmp.Diff([]string{"1"}, b.ids()); diff != "" {
		t.Errorf("at the broker (-want +got):\n%s", diff)
	}
	// Only the stack itself asks, announces and looks again.
	for _, eventType := range []string{events.TypeNetworkRequested, events.TypeMachineCreated, events.TypeResync, events.TypeRefDelete} {
		forged := strings.Replace(event, "io.vitistack.workorder.approved", eventType, 1)
		if r := send("m3", now, forged, secret.Sign("m3", now, []byte(forged)), "Content-Type", structured); r.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %s %s", eventType, r.Status, r.body)
		}
	}
}

// TestLogInjection has callers try to write lines of their own into the log.
func TestLogInjection(t *testing.T) {
	t.Parallel()
	s := start(t, "--logging.includeHeaders=true")
	forged := `%0A{"level":"error","message":"forged"}`
	s.get("/api/v1/clusters/x"+forged, "X-Request-ID", `a","level":"x`)
	s.raw("GET /api/v1/clusters HTTP/1.1\r\nHost: g\r\nUser-Agent: \x1b[2J\u2028\r\nX-A: \x1b\r\n\r\n")
	s.get("/api/v1/clusters?q=" + forged)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(s.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["message"] == "forged" || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\r\n\u2028") {
			t.Errorf("line %q: %v", line, err)
		}
	}
}

// TestPageInjection has backends and events bring markup into everything that the
// page shows. It is text there; and were it markup, the policy would let none of it
// run or load anything.
func TestPageInjection(t *testing.T) {
	t.Parallel()
	const markup = `<img src=x onerror="window.owned=1"><script>window.owned=1</script><svg onload=window.owned=1>"'><a href="javascript:window.owned=1">x</a>{{7*7}}`
	s := start(t)
	m := aMachine("team-a", "one", "Failed")
	m.Labels = map[string]string{"cluster.vitistack.io/cluster-name": "shop"}
	m.Status.Provider, m.Status.NodeName, m.Status.VMName = markup, markup, markup
	m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "VMFailed", Message: markup, LastTransitionTime: metav1.Now()}}
	c := aCluster("team-a", "shop", "Failed")
	c.Status.Endpoint = "javascript:window.owned=1"
	c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "PatchInvalid", Message: markup, LastTransitionTime: metav1.Now()}}
	s.api.Put(t, "machines", m)
	s.api.Put(t, "kubernetesclusters", c)
	eventually(t, "the machine", func() bool { return s.get("/api/v1/machines").Header.Get("X-Total-Count") == "1" })
	quoted, err := json.Marshal(markup)
	if err != nil {
		t.Fatal(err)
	}
	letter := `{"specversion":"1.0","id":"dead","source":"/apis","type":` + string(quoted) + `,"subject":` + string(quoted) + `,"knativeerrordest":` + string(quoted) + `,"data":` + string(quoted) + `}`
	if r := s.do(http.MethodPost, "/dead-letters", letter, "Content-Type", structured); r.StatusCode >= 300 {
		t.Fatalf("the dead letter: %s %s", r.Status, r.body)
	}
	said := `{"specversion":"1.0","id":"said","source":"/ipam","type":"io.vitistack.network.failed","subject":` + string(quoted) + `,"data":{"uid":"u","reason":"No","message":` + string(quoted) + `}}`
	if r := s.do(http.MethodPost, "/events", s.signed(said), "Content-Type", structured); r.StatusCode >= 300 {
		t.Fatalf("the event: %s %s", r.Status, r.body)
	}
	b := browser.New(t, s.url, 1200, 800)
	b.Open("#/overview")
	for _, view := range []string{"overview", "machines", "machines/team-a/one", "clusters/team-a/shop", "hosts", "events", "pipeline"} {
		b.See("#/" + view)
		b.Wait("a view of "+view, `document.querySelector("main")?.textContent.trim() !== ""`)
		if view == "machines/team-a/one" {
			b.Wait("the text of the markup", `document.querySelector("main").textContent.includes("<script>window.owned=1</script>")`)
		}
		b.Wait("no markup in "+view, `window.owned === undefined && !document.querySelector("main img, main script, main [onload], main [onerror], a[href^='javascript:']")`)
	}
	b.See("#/machines?q=" + url.QueryEscape(markup))
	b.Wait("no markup of the address", `window.owned === undefined && !document.querySelector("main img, main script")`)
	b.Clean()
	for _, path := range []string{"/", "/api/v1/docs"} {
		policy := s.get(path).Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'self'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
	if r := s.get("/api/v1/nothing" + url.PathEscape(markup)); strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("an error is %s", r.Header.Get("Content-Type"))
	}
}

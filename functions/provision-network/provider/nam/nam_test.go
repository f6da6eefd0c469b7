package nam

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/tests/sim/faults"
	sim "github.com/vitistack/stack/tests/sim/nam"
	"github.com/vitistack/stack/tests/stand/feed"
)

const namToken = "of-the-test"

// manager is a simulated NAM whose requests and answers are validated against the API.
type manager struct {
	*sim.Server
	plan  *faults.Plan
	clock *feed.Clock
	nam   Provider
	url   string
}

func newManager(t *testing.T, slow time.Duration) *manager {
	t.Helper()
	m := &manager{plan: &faults.Plan{}, clock: feed.NewClock()}
	var err error
	if m.Server, err = sim.New(sim.Options{Token: namToken, Slow: slow, Faults: m.plan, Now: m.clock.Now}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(conforming(t, m.Server))
	t.Cleanup(server.Close)
	m.url = server.URL + "/v1"
	m.nam = Provider{client(t, m.url, namToken)}
	return m
}

func client(t *testing.T, url, token string) *httpclient.Client {
	t.Helper()
	c, err := httpclient.New(httpclient.Config{URL: url, Token: token, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func someNetwork(uid string, spec v1alpha2.NetworkNamespaceSpec) *v1alpha2.NetworkNamespace {
	return &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "prod", UID: types.UID(uid)}, Spec: spec}
}

const (
	uidA = "0f5b3b9e-8f6e-4a55-9a31-0c5f6f3a7d10"
	uidB = "1f5b3b9e-8f6e-4a55-9a31-0c5f6f3a7d11"
)

func namSpec(r v1alpha2.SegmentRequest) v1alpha2.NetworkNamespaceSpec {
	return v1alpha2.NetworkNamespaceSpec{
		DatacenterIdentifier: "no-west-az1", SupervisorIdentifier: "team-a",
		NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "nam", NAM: &r},
	}
}

// api returns the compiled schemas of the OpenAPI document by name.
var api = sync.OnceValue(func() map[string]*jsonschema.Schema {
	text, err := os.ReadFile("nam.openapi.yaml")
	if err != nil {
		panic(err)
	}
	text, err = yaml.YAMLToJSON(text)
	if err != nil {
		panic(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("nam.json", document); err != nil {
		panic(err)
	}
	all := map[string]*jsonschema.Schema{}
	for _, name := range []string{"Segment", "SegmentRequest", "SegmentList", "Problem"} {
		all[name] = c.MustCompile("nam.json#/components/schemas/" + name)
	}
	return all
})

// conforming validates requests and answers against the OpenAPI document. Answers that a fault rule
// plans are exempt.
func conforming(t *testing.T, next *sim.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodPut {
			conforms(t, "SegmentRequest", body)
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		switch kind := rec.Header().Get("Content-Type"); {
		case kind == "application/problem+json":
			conforms(t, "Problem", rec.Body.Bytes())
		case kind == "application/json" && path.Base(r.URL.Path) != "segments" && !next.Lying():
			conforms(t, "Segment", rec.Body.Bytes())
		case kind == "application/json" && path.Base(r.URL.Path) == "segments":
			conforms(t, "SegmentList", rec.Body.Bytes())
		}
		if rec.Code == http.StatusAccepted && rec.Header().Get("Retry-After") == "" {
			t.Errorf("%s %s: 202 without Retry-After", r.Method, r.URL.Path)
		}
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

func conforms(t *testing.T, schema string, body []byte) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err == nil {
		err = api()[schema].Validate(value)
	}
	if err != nil {
		t.Errorf("%s in nam.openapi.yaml does not describe %s: %v", schema, body, err)
	}
}

func TestTakesItsTime(t *testing.T) {
	t.Parallel()
	m := newManager(t, 15*time.Second)
	nn := someNetwork(uidA, namSpec(v1alpha2.SegmentRequest{IPFamilies: []v1alpha2.IPFamily{"IPv4", "IPv6"}, IPv4PrefixLength: 26}))
	_, err := m.nam.Provide(t.Context(), nn)
	if f := asError(t, err); f.Reason != provider.ReasonWorking || f.RetryAfter != 15*time.Second {
		t.Fatalf("a working manager must say for how long: got %+v", f)
	}
	m.clock.Pass(15 * time.Second)
	seg, err := m.nam.Provide(t.Context(), nn)
	if err != nil {
		t.Fatal(err)
	}
	if seg.IPv4.Bits() != 26 || !seg.IPv6.IsValid() || !seg.IPv4.Contains(seg.IPv4Gateway) || seg.VLAN == 0 || seg.ID == "" {
		t.Errorf("got %+v", seg)
	}
	if err := m.nam.Release(t.Context(), nn); asError(t, err).Reason != provider.ReasonWorking {
		t.Errorf("a release takes time as well: got %v", err)
	}
	m.clock.Pass(15 * time.Second)
	if err := m.nam.Release(t.Context(), nn); err != nil {
		t.Errorf("a segment that does not exist is released: got %v", err)
	}
}

func asError(t *testing.T, err error) provider.Error {
	t.Helper()
	var f provider.Error
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want an Error", err)
	}
	return f
}

// TestCreatedAgain creates a network again, without its status, and with another request than its segment was created for. Machines may use the segment.
func TestCreatedAgain(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	had, err := m.nam.Provide(t.Context(), someNetwork(uidA, namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 24})))
	if err != nil {
		t.Fatal(err)
	}
	again := someNetwork(uidB, namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 25}))
	again.Annotations = map[string]string{v1alpha1.AnnotationFormerUIDs: uidA}
	_, err = m.nam.Provide(t.Context(), again)
	if f := asError(t, err); f.Reason != "SourceConflict" || !strings.Contains(f.Message, "write the spec.datacenterIdentifier, spec.supervisorIdentifier and spec.networkProvisioning.nam that the network had before") {
		t.Errorf("got %+v", f)
	}
	again.Spec = namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 24})
	if has, err := m.nam.Provide(t.Context(), again); err != nil || !has.Same(had) {
		t.Errorf("the network has %v, had %v: %v", has, had, err)
	}
	// The manager loses the segment. The message names the UID with which the manager has to restore it.
	if err := m.nam.Release(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	_, err = m.nam.Find(t.Context(), again)
	if f := asError(t, err); f.Reason != provider.ReasonGone || !strings.Contains(f.Message, "restore it there with the UID "+uidA) {
		t.Errorf("got %+v", f)
	}
}

// TestClaimedIsOutdated edits the request of a network that has claimed its segment and was not Ready before its process died. Nothing
// uses the segment.
func TestClaimedIsOutdated(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	nn := someNetwork(uidA, namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 24}))
	seg, err := m.nam.Provide(t.Context(), nn)
	if err != nil {
		t.Fatal(err)
	}
	segment.SetStatus(nn, seg)
	nn.Spec = namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 25})
	for phase, outdated := range map[v1alpha2.ProvisioningPhase]bool{v1alpha2.ProvisioningPending: true, v1alpha2.ProvisioningReady: false} {
		nn.Status.ProvisioningPhase = phase
		_, err = m.nam.Provide(t.Context(), nn)
		if f := asError(t, err); f.Outdated != outdated || f.Permanent == outdated {
			t.Errorf("%s: got %+v, want outdated %t", phase, f, outdated)
		}
	}
}

// TestFaults checks the error of each way in which a manager can fail.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault  string
		reason string
		final  bool
		says   string
	}{
		"400":       {"400", "SourceRejected", true, "fails as planned"},
		"401":       {"401", "SourceUnauthorized", true, "NAM_TOKEN"},
		"403":       {"403", "SourceUnauthorized", true, "NAM_TOKEN"},
		"404":       {"404", "SourceNotFound", true, "NAM_URL"},
		"409":       {"409", "SourceConflict", true, "fails as planned"},
		"422":       {"422", "SourceRejected", true, "fails as planned"},
		"429":       {"429", "SourceThrottled", false, "later"},
		"500":       {"500", "SourceUnavailable", false, "500"},
		"503":       {"503", "SourceUnavailable", false, "503"},
		"302":       {"302", "SourceNotFound", true, "NAM_URL"},
		"Dropped":   {"drop", "SourceUnavailable", false, "closed the connection"},
		"Malformed": {"garbage", "SourceUnexpectedAnswer", true, "not JSON"},
		"Failed":    {"fail", "SourceFailed", true, "call the network team"},
		"UID":       {"lie-uid", "SourceUnexpectedAnswer", true, "another network"},
		"HostBits":  {"lie-hostbits", "SourceUnexpectedAnswer", true, "host bits"},
		"Prefix":    {"lie-prefix", "SourceUnexpectedAnswer", true, "ipv4Prefix"},
		"Gateway":   {"lie-gateway", "SourceUnexpectedAnswer", true, "outside"},
		"VLAN":      {"lie-vlan", "SourceUnexpectedAnswer", true, "VLAN 5000"},
		"State":     {"lie-state", "SourceUnexpectedAnswer", true, "perfect"},
		"Empty":     {"lie-empty", "SourceUnexpectedAnswer", true, "neither"},
		"Size":      {"lie-size", "SourceUnexpectedAnswer", true, "not a /24"},
		"DNS":       {"lie-dns", "SourceUnexpectedAnswer", true, "dns"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newManager(t, 0)
			nn := someNetwork(uidA, namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 24}))
			if err := m.plan.Set(faults.Rule{Operation: "PUT /segments", Error: tc.fault, Times: 1}); err != nil {
				t.Fatal(err)
			}
			_, err := m.nam.Provide(t.Context(), nn)
			f := asError(t, err)
			if f.Reason != tc.reason || f.Permanent != tc.final || !strings.Contains(f.Message, tc.says) {
				t.Errorf("got %+v, want %s, final %t, with %q in it", f, tc.reason, tc.final, tc.says)
			}
			if _, err := m.nam.Provide(t.Context(), nn); err != nil || len(m.Segments()) != 1 {
				t.Errorf("a repeated request must provide one segment: got %v, %v", m.Segments(), err)
			}
		})
	}
}

func TestIsNotThere(t *testing.T) {
	t.Parallel()
	nn := someNetwork(uidA, namSpec(v1alpha2.SegmentRequest{}))
	gone := httptest.NewServer(http.NotFoundHandler())
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	refusing := Provider{client(t, gone.URL, "")}
	gone.Close()
	if _, err := refusing.Provide(t.Context(), nn); asError(t, err).Reason != "SourceUnavailable" || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a closed port: got %v", err)
	}
	if err := (Provider{client(t, elsewhere.URL, "")}).Release(t.Context(), nn); err == nil || asError(t, err).Reason != "SourceNotFound" {
		t.Errorf("a 404 from another server does not mean that the segment is released: got %v", err)
	}
	slow := newManager(t, 0)
	if err := slow.plan.Set(faults.Rule{Latency: "10s"}); err != nil {
		t.Fatal(err)
	}
	impatient, err := httpclient.New(httpclient.Config{URL: slow.url, Token: namToken, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Provider{impatient}).Provide(t.Context(), nn); asError(t, err).Reason != "SourceUnavailable" || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("a manager that does not answer: got %v", err)
	}
	wrong := Provider{client(t, slow.url, "wrong")}
	if _, err := wrong.Provide(t.Context(), nn); asError(t, err).Reason != "SourceUnauthorized" {
		t.Errorf("a wrong token: got %v", err)
	}
}

// TestIsAnotherAPI has something else than the manager answer 404 in JSON: it does not know whether there is a segment.
func TestIsAnotherAPI(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	nn := someNetwork(uidA, namSpec(v1alpha2.SegmentRequest{}))
	if _, err := m.nam.Provide(t.Context(), nn); err != nil {
		t.Fatal(err)
	}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message":"no Route matched with those values"}`))
	}))
	t.Cleanup(gateway.Close)
	for name, url := range map[string]string{"Gateway": gateway.URL, "Path": strings.TrimSuffix(m.url, "/v1") + "/v2"} {
		p := Provider{client(t, url, namToken)}
		if err := p.Release(t.Context(), nn); err == nil || asError(t, err).Reason != "SourceNotFound" {
			t.Errorf("%s: the release returns %v, want an error about NAM_URL", name, err)
		}
		if _, err := p.Find(t.Context(), nn); asError(t, err).Reason != "SourceNotFound" {
			t.Errorf("%s: the segment is not gone: %v", name, err)
		}
	}
	if err := m.nam.Release(t.Context(), nn); err != nil {
		t.Fatal(err)
	}
	if err := m.plan.Set(faults.Rule{Operation: "GET /segments", Error: "403"}); err != nil {
		t.Fatal(err)
	}
	if err := m.nam.Release(t.Context(), nn); err != nil {
		t.Errorf("a manager that refuses the list has no segment: %v", err)
	}
}

// TestLosesAnswers loses the answer to a request that was carried out.
func TestLosesAnswers(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	nn := someNetwork(uidA, namSpec(v1alpha2.SegmentRequest{}))
	lose(t, m, "PUT /segments", func() error { _, err := m.nam.Provide(t.Context(), nn); return err })
	if n := len(m.Segments()); n != 1 {
		t.Errorf("%d segments, want 1", n)
	}
	lose(t, m, "DELETE /segments", func() error { return m.nam.Release(t.Context(), nn) })
	if n := len(m.Segments()); n != 0 {
		t.Errorf("%d segments are left", n)
	}
}

func lose(t *testing.T, m *manager, operation string, act func() error) {
	t.Helper()
	if err := m.plan.Set(faults.Rule{Operation: operation, Error: "drop", After: true, Times: 1}); err != nil {
		t.Fatal(err)
	}
	if err := act(); err == nil {
		t.Errorf("%s: its answer should have been lost", operation)
	}
	if err := act(); err != nil {
		t.Errorf("%s again: %v", operation, err)
	}
}

// TestRefusesStrangers sends requests that the API does not define.
func TestRefusesStrangers(t *testing.T) {
	t.Parallel()
	s, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, target, media, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, r)
		return rec
	}
	const good = `{"name":"a","namespace":"b","ipFamilies":["IPv4"]}`
	for name, tc := range map[string]struct {
		method, target, media, body string
		want                        int
	}{
		"Good":       {"PUT", "/v1/segments/" + uidA, "application/json", good, 200},
		"Key":        {"PUT", "/v1/segments/x", "application/json", good, 400},
		"Media":      {"PUT", "/v1/segments/" + uidB, "text/plain", good, 415},
		"Unknown":    {"PUT", "/v1/segments/" + uidB, "application/json", `{"name":"a","namespace":"b","ipFamilies":["IPv4"],"size":24}`, 400},
		"Families":   {"PUT", "/v1/segments/" + uidB, "application/json", `{"name":"a","namespace":"b","ipFamilies":[]}`, 400},
		"Length":     {"PUT", "/v1/segments/" + uidB, "application/json", `{"name":"a","namespace":"b","ipFamilies":["IPv4"],"ipv4PrefixLength":31}`, 400},
		"Identifier": {"PUT", "/v1/segments/" + uidB, "application/json", `{"name":"a","namespace":"b","ipFamilies":["IPv4"],"datacenterIdentifier":"a b"}`, 400},
		"Path":       {"GET", "/v1/prefixes", "", "", 404},
		"Missing":    {"GET", "/v1/segments/" + uidB, "", "", 404},
		"Limit":      {"GET", "/v1/segments?limit=0", "", "", 400},
	} {
		if got := send(tc.method, tc.target, tc.media, tc.body); got.Code != tc.want {
			t.Errorf("%s: got %d %s, want %d", name, got.Code, got.Body, tc.want)
		}
	}
	if got := send("PUT", "/v1/segments/"+uidA, "application/json", `{"name":"c","namespace":"b","ipFamilies":["IPv4"]}`); got.Code != 409 {
		t.Errorf("another request for the same segment: got %d %s", got.Code, got.Body)
	}
	send("PUT", "/v1/segments/"+uidB, "application/json", good)
	var page struct {
		Items    []sim.Segment
		Continue string
	}
	if err := json.Unmarshal(send("GET", "/v1/segments?limit=1", "", "").Body.Bytes(), &page); err != nil || len(page.Items) != 1 || page.Continue != uidA {
		t.Errorf("a page of one: got %+v, %v", page, err)
	}
	page.Items = nil
	if err := json.Unmarshal(send("GET", "/v1/segments?continue="+page.Continue, "", "").Body.Bytes(), &page); err != nil || len(page.Items) != 1 || page.Items[0].UID != uidB {
		t.Errorf("the page after it: got %+v, %v", page, err)
	}
}

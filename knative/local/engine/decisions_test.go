package engine

import (
	"errors"
	"flag"
	"io"
	"net/url"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/tracker"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/knative/local/manifest"
)

var machines = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machines"}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestRead(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		object string
		want   progress
	}{
		"Nothing":      {reason: "a new object has no progress", object: "metadata: {name: a}"},
		"Phase":        {reason: "status.phase", object: "status: {phase: Running}", want: progress{phase: "Running"}},
		"Provisioning": {reason: "status.provisioningPhase takes precedence", object: "status: {phase: Active, provisioningPhase: Ready}", want: progress{phase: "Ready"}},
		"Deleting":     {reason: "a deletion takes precedence", object: "metadata: {deletionTimestamp: '2026-01-01T00:00:00Z'}\nstatus: {phase: Running}", want: progress{phase: "Deleting"}},
		"Ready":        {reason: "a True condition is no reason", object: "status: {phase: Running, conditions: [{type: Ready, status: 'True', reason: AllGood}]}", want: progress{phase: "Running"}},
		"NotReady":     {reason: "the condition has the reason", object: "status: {phase: Pending, conditions: [{type: Other, status: 'False', reason: X}, {type: Ready, status: 'False', reason: NoNetwork, message: create one}]}", want: progress{phase: "Pending", reason: "NoNetwork", message: "create one"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, read(object(t, tc.object)), cmp.AllowUnexported(progress{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTell(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		before, now progress
		want        string // empty: nothing is printed
	}{
		"First":         {reason: "the first phase", now: progress{phase: "Pending"}, want: "Pending"},
		"Next":          {reason: "a new phase, with the duration of the old one", before: progress{phase: "Creating"}, now: progress{phase: "Running"}, want: "Creating → Running  (4.2 s)"},
		"Same":          {reason: "nothing new", before: progress{phase: "Running"}, now: progress{phase: "Running"}},
		"Waiting":       {reason: "a reason to wait", before: progress{phase: "Pending"}, now: progress{phase: "Pending", reason: "NoNetwork", message: "create one"}, want: "Pending  waiting: NoNetwork: create one"},
		"SameReason":    {reason: "a new message is not printed", before: progress{phase: "Pending", reason: "NoNetwork", message: "a"}, now: progress{phase: "Pending", reason: "NoNetwork", message: "b"}},
		"OtherReason":   {reason: "a new reason is printed", before: progress{phase: "Pending", reason: "NoNetwork"}, now: progress{phase: "Pending", reason: "NoAddress"}, want: "Pending  waiting: NoAddress"},
		"PhaseAsReason": {reason: "a reason that repeats the phase is not printed", before: progress{phase: "Pending"}, now: progress{phase: "Pending", reason: "Pending"}},
		"Both":          {reason: "a new phase with a reason to wait", before: progress{phase: "Running"}, now: progress{phase: "Failed", reason: "DiskLost", message: "gone"}, want: "Running → Failed  (4.2 s)  waiting: DiskLost: gone"},
		"Resolved":      {reason: "the new phase shows that the reason is resolved", before: progress{phase: "Pending", reason: "NoNetwork"}, now: progress{phase: "Pending"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, ok := formatTransition(tc.before, tc.now, 4200*time.Millisecond)
			if diff := cmp.Diff(tc.want, line); diff != "" || ok != (tc.want != "") {
				t.Errorf("%s (-want +got, printed %v):\n%s", tc.reason, ok, diff)
			}
		})
	}
}

func TestMergeStatus(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	current := "metadata: {generation: 2}\nstatus:\n  url: http://x\n  observedGeneration: 2\n  conditions: [{type: Ready, status: 'True', lastTransitionTime: '2025-01-01T00:00:00Z'}]"
	cases := map[string]struct {
		reason      string
		object      string
		conditions  []condition
		wantChanged bool
		wantTime    string
	}{
		"Same":      {reason: "an unchanged status is not written", object: current, conditions: ready(), wantTime: "2025-01-01T00:00:00Z"},
		"New":       {reason: "an object without a status gets one", object: "metadata: {generation: 2}", conditions: ready(), wantChanged: true, wantTime: "2026-01-02T03:04:05Z"},
		"Extra":     {reason: "another condition does not change the others", object: current, conditions: ready("Addressable"), wantChanged: true, wantTime: "2025-01-01T00:00:00Z"},
		"Flipped":   {reason: "a transition has a new time", object: current, conditions: notReady("Refused", errors.New("why")), wantChanged: true, wantTime: "2026-01-02T03:04:05Z"},
		"Respecced": {reason: "a new generation is observed", object: "metadata: {generation: 3}\n" + current[len("metadata: {generation: 2}\n"):], conditions: ready(), wantChanged: true, wantTime: "2025-01-01T00:00:00Z"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := object(t, tc.object)
			// In the form of decoded answers of the API server.
			generation, _, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", "generation")
			o.SetGeneration(int64(generation.(float64)))
			if observed, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "observedGeneration"); ok {
				if err := unstructured.SetNestedField(o.Object, int64(observed.(float64)), "status", "observedGeneration"); err != nil {
					t.Fatal(err)
				}
			}
			status, changed := mergeStatus(o, map[string]any{"url": "http://x"}, tc.conditions, now)
			first := status["conditions"].([]any)[0].(map[string]any)
			if diff := cmp.Diff([]any{tc.wantChanged, tc.wantTime}, []any{changed, first["lastTransitionTime"]}); diff != "" {
				t.Errorf("%s: changed and time (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSinkOf(t *testing.T) {
	t.Parallel()
	program := manifest.Program{
		Kind:      schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: "Service"},
		Namespace: "ns", Name: "resync", Labels: map[string]string{"sends": "yes"},
	}
	subject := func(change func(*tracker.Reference)) tracker.Reference {
		r := tracker.Reference{APIVersion: "serving.knative.dev/v1", Kind: "Service", Name: "resync"}
		change(&r)
		return r
	}
	ref := brokerRef("", "vitistack")
	toBroker := duckv1.Destination{Ref: &ref}
	cases := map[string]struct {
		reason  string
		subject tracker.Reference
		sink    duckv1.Destination
		proxy   string
		want    string
	}{
		"Name":      {reason: "the subject has the name", subject: subject(func(*tracker.Reference) {}), sink: toBroker, want: "http://broker/ns/vitistack"},
		"OtherName": {reason: "another object", subject: subject(func(r *tracker.Reference) { r.Name = "other" }), sink: toBroker},
		"OtherKind": {reason: "the subject has another kind", subject: subject(func(r *tracker.Reference) { r.APIVersion = "v1" }), sink: toBroker},
		"Elsewhere": {reason: "another namespace", subject: subject(func(r *tracker.Reference) { r.Namespace = "other" }), sink: toBroker},
		"Labels": {reason: "the labels match", subject: subject(func(r *tracker.Reference) {
			r.Name, r.Selector = "", &metav1.LabelSelector{MatchLabels: map[string]string{"sends": "yes"}}
		}), sink: toBroker, want: "http://broker/ns/vitistack"},
		"OtherLabels": {reason: "the labels do not match", subject: subject(func(r *tracker.Reference) {
			r.Name, r.Selector = "", &metav1.LabelSelector{MatchLabels: map[string]string{"sends": "no"}}
		}), sink: toBroker},
		"Proxy":    {reason: "a proxy replaces the Broker", subject: subject(func(*tracker.Reference) {}), sink: toBroker, proxy: "http://proxy/", want: "http://proxy/"},
		"URI":      {reason: "a URL is used as it is, also with a proxy", subject: subject(func(*tracker.Reference) {}), sink: duckv1.Destination{URI: apis.HTTP("elsewhere")}, proxy: "http://proxy/", want: "http://elsewhere"},
		"Relative": {reason: "a path is relative to the reference", subject: subject(func(*tracker.Reference) {}), sink: duckv1.Destination{Ref: &ref, URI: &apis.URL{Path: "/events"}}, want: "http://broker/events"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var proxy *url.URL
			if tc.proxy != "" {
				proxy = mustURL(tc.proxy)
			}
			a := newAddresses(proxy)
			a.set(brokerRef("ns", "vitistack"), mustURL("http://broker/ns/vitistack"))
			binding := &sourcesv1.SinkBinding{}
			binding.Namespace, binding.Spec.Subject, binding.Spec.Sink = "ns", tc.subject, tc.sink
			u, err := a.sinkOf(program, []*sourcesv1.SinkBinding{binding})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if u != nil {
				got = u.String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParseSignal(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		want   syscall.Signal
		fails  bool
	}{
		"":        {reason: "KILL is the default", want: syscall.SIGKILL},
		"TERM":    {reason: "a name", want: syscall.SIGTERM},
		"sigstop": {reason: "the long name, in any case", want: syscall.SIGSTOP},
		"18":      {reason: "a number", want: syscall.SIGCONT},
		"NONE":    {reason: "no signal", fails: true},
		"99":      {reason: "no signal", fails: true},
		"-9":      {reason: "no signal", fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseSignal(name)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%s: got %v, %v", tc.reason, got, err)
			}
		})
	}
}

func TestParseOptions(t *testing.T) {
	t.Parallel()
	got, err := ParseOptions([]string{"--root=/r", "--state=s", "--process=sim=sim --x=1", "--process=other=b", "--await=other", "--crds=a", "--crds=b",
		"--apply=f", "--config=A=b=c", "--config=B=", "--ingress=http://proxy:1/", "--ping-every=1s", "--concurrency=5"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	state, err := filepath.Abs("s")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		t.Fatal(err)
	}
	want := Options{
		Root: "/r", State: state, Bin: bin, GatewayPort: 9991, Idle: 15 * time.Second, Processes: 1, Concurrency: 5,
		Extra: []extraProcess{{"sim", "sim --x=1"}, {"other", "b"}}, Await: []string{"other"}, CRDs: []string{"a", "b"}, Apply: []string{"f"},
		Config: map[string]string{"A": "b=c", "B": ""}, Ingress: mustURL("http://proxy:1/"), PingEvery: time.Second,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(extraProcess{}), cmpopts.IgnoreFields(Options{}, "Self", "Out")); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	for _, args := range [][]string{{"--process=sim"}, {"--process=a/b=c"}, {"--config=x"}, {"--config==x"}, {"--ingress=proxy"}, {"--apiserver=127.0.0.1"}, {"--processes=0"}, {"--concurrency=-1"}, {"--idle=0"}, {"--unknown"}, {"argument"}, {"--process=sim=b", "--await=other"}} {
		if _, err := ParseOptions(args, io.Discard); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
	if got, err := ParseOptions([]string{"--oidc"}, io.Discard); err != nil || !got.OIDC || got.Config["OIDC_ENABLED"] != "true" {
		t.Errorf("--oidc: got %v, %v", got, err)
	}
	if _, err := ParseOptions([]string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: got %v", err)
	}
}

func TestPortsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := func() int {
		s, err := openState(dir)
		if err != nil {
			t.Fatal(err)
		}
		listener, err := s.listen("a", 0, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(listener.Close(), s.close()); err != nil {
			t.Fatal(err)
		}
		return portOf(listener)
	}
	if first, second := port(), port(); first != second {
		t.Errorf("port %d, then %d", first, second)
	}
	s, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	if _, err := openState(dir); err == nil {
		t.Error("two engines have the same state")
	}
}

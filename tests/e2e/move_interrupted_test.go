package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/transport"
)

// interrupter forwards the requests of kubectl viti to the API servers of both engines. It refuses each write once, and when
// the write comes again, it forwards it and kills the command before the answer.
type interrupter struct {
	mu      sync.Mutex
	process *exec.Cmd
	// times has how often each write has come.
	times map[string]int
	// targeted is when the first write has gone to the second engine.
	targeted time.Time
}

// timestamp matches a time in the body of a write, which differs in each call.
var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[^"]*`)

// errKilled ends a request whose client does not exist any more.
var errKilled = errors.New("the command is killed")

// serve returns a kubeconfig that leads to an engine through the interrupter.
func (i *interrupter) serve(t *testing.T, e *engine.Engine, side string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	under, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:    transport.Func(func(r *http.Request) (*http.Response, error) { return i.forward(under, r, side) }),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{side: {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{side: {Cluster: side}},
		CurrentContext: side,
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func (i *interrupter) forward(under http.RoundTripper, r *http.Request, side string) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return under.RoundTrip(r)
	}
	write, err := nameWrite(r, side)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	i.times[write]++
	times := i.times[write]
	if side == "to" && i.targeted.IsZero() {
		i.targeted = time.Now()
	}
	i.mu.Unlock()
	if times == 1 {
		return nil, errors.New("refused once")
	}
	res, err := under.RoundTrip(r)
	if times > 2 || err != nil || res.StatusCode >= http.StatusBadRequest {
		return res, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = res.Body.Close()
	return nil, errors.Join(errKilled, i.process.Process.Kill())
}

// nameWrite returns what is the same if a second call of the command sends a write again.
func nameWrite(r *http.Request, side string) (string, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	what := ""
	switch r.Method {
	case http.MethodPost:
		var o unstructured.Unstructured
		if err := json.Unmarshal(body, &o.Object); err != nil {
			return "", err
		}
		what = o.GetName()
	case http.MethodPatch:
		what = timestamp.ReplaceAllString(string(body), "")
	}
	return strings.Join([]string{side, r.Method, r.URL.Path, what}, " "), nil
}

// run runs kubectl viti move, and returns what it wrote and whether it ended by itself, without an error.
func (i *interrupter) run(t *testing.T, from, to, namespace string) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	command := exec.CommandContext(t.Context(), filepath.Join(engine.Bin(t), "kubectl-viti"), "--kubeconfig", from, "move", "--to-kubeconfig", to, "-n", namespace)
	command.Stdout, command.Stderr = &out, &out
	i.mu.Lock()
	i.process = command
	err := command.Start()
	i.mu.Unlock()
	if err == nil {
		err = command.Wait()
	}
	return out.String(), err == nil
}

var movedKinds = []schema.GroupVersionResource{engine.NetworkNamespaces, engine.NetworkConfigurations, engine.IPAllocations, engine.Machines}

// moveInterrupted moves a Machine with a reservation of Kea by a command whose every write fails once, and which is then killed
// after it: the next call continues, nothing is lost or doubled, and the functions of at most one management cluster reconcile each object.
func (p pair) moveInterrupted(t *testing.T) {
	const namespace = "interrupted"
	from, to := p.from, p.to
	from.Apply(namespace, fmt.Sprintf(movedDHCPNetwork, 32))
	from.Apply(namespace, fmt.Sprintf(movedInto, "leases", "kubevirt"))
	from.UntilPhase(engine.Machines, namespace, "leases", "Running")
	before, vms, instances := settledBackends(t, from, namespace, 0).kept(), uidsIn(from, engine.VirtualMachines, namespace), uidsIn(from, engine.Instances, namespace)
	end := watchBackends(from, namespace, before)
	i := &interrupter{times: map[string]int{}}
	fromConfig, toConfig := i.serve(t, from, "from"), i.serve(t, to, "to")
	calls, began := 0, time.Now()
	const most = 200
	for out, done := "", false; !done; calls++ {
		if out, done = i.run(t, fromConfig, toConfig, namespace); calls == most {
			t.Fatalf("the command does not complete the move in %d calls: %s", calls, out)
		}
		if both := activeAtBoth(from, to, namespace); len(both) > 0 {
			t.Errorf("after call %d the functions of both management clusters reconcile %v", calls, both)
		}
	}
	t.Logf("%d calls in %s", calls, time.Since(began).Round(time.Second))
	if writes := len(i.times); calls != 2*writes+1 {
		t.Errorf("%d writes need two calls each, and one at the end: got %d\n%v", writes, calls, i.times)
	}
	to.UntilPhase(engine.Machines, namespace, "leases", "Running")
	feed.Until(t, "all marks are those of the new objects", func() (bool, string) {
		now, err := readBackends(from, namespace)
		wrong := wrongMarks(to, namespace, now)
		return err == nil && wrong == "", fmt.Sprint(wrong, err)
	})
	if diff := end(); diff != "" {
		t.Errorf("while the Machine moved (-before +meanwhile):\n%s", diff)
	}
	if diff := cmp.Diff([]map[string]string{vms, instances}, []map[string]string{uidsIn(from, engine.VirtualMachines, namespace), uidsIn(from, engine.Instances, namespace)}); diff != "" {
		t.Errorf("the virtual machine (-before +after):\n%s", diff)
	}
	for _, r := range from.Requests(i.targeted) {
		if r.Function() != "" && r.ObjectRef.Namespace == namespace && r.Writes() {
			t.Errorf("the first management cluster writes: %s %s %s", r.Function(), r.Verb, r.ObjectRef.Resource)
		}
	}
	for _, resource := range movedKinds {
		if left := uidsIn(from, resource, namespace); len(left) > 0 {
			t.Errorf("the first management cluster has %s %v", resource.Resource, left)
		}
	}
	p.deleteInterrupted(t, namespace)
}

func (p pair) deleteInterrupted(t *testing.T, namespace string) {
	t.Helper()
	p.to.Delete(engine.Machines, namespace, "leases")
	p.to.Delete(engine.NetworkNamespaces, namespace, "leases")
	feed.Until(t, "the second management cluster deletes everything", func() (bool, string) {
		left := uidsIn(p.from, engine.VirtualMachines, namespace)
		for _, resource := range movedKinds {
			maps.Copy(left, uidsIn(p.to, resource, namespace))
		}
		b, err := readBackends(p.from, namespace)
		return err == nil && len(left)+len(b.reservations) == 0, fmt.Sprint(left, b, err)
	})
}

// activeAtBoth returns the objects of a namespace that both engines have and that are paused at neither.
func activeAtBoth(from, to *engine.Engine, namespace string) (both []string) {
	for _, resource := range movedKinds {
		for _, o := range from.List(resource, namespace, "") {
			there := to.Get(resource, namespace, o.GetName())
			if there != nil && !v1alpha1.IsPaused(there) && !v1alpha1.IsPaused(&o) {
				both = append(both, resource.Resource+" "+o.GetName())
			}
		}
	}
	return both
}

// uidsIn returns the UIDs of all objects of a resource in a namespace by name.
func uidsIn(e *engine.Engine, resource schema.GroupVersionResource, namespace string) map[string]string {
	uids := map[string]string{}
	for _, u := range e.List(resource, namespace, "") {
		uids[u.GetName()] = string(u.GetUID())
	}
	return uids
}

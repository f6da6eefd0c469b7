package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

// site is a hypervisor for the contract: how to reach it, and what is on it.
type site struct {
	// provider is a MachineProvider of the site.
	provider string
	// vms are the identities of the virtual machines that were made for a Machine.
	vms func(m *v1alpha1.Machine) []string
	// left is everything at the site that bears a Machine's name or UID, in words.
	left func(m *v1alpha1.Machine) []string
	// foreign makes virtual machines for somebody else in the place that a Machine
	// has claimed, or else would claim, and returns whether they are still there and
	// as they were.
	foreign func(m *v1alpha1.Machine) (untouched func() bool)
	// makes is the request that makes the first virtual machine, and evicted the
	// reason of the condition Ready of a Machine whose place is taken.
	makes, evicted string
	// starts is how often a Machine's virtual machine has been started.
	starts func(m *v1alpha1.Machine) int
	// held is whether the first configuration of a Machine's guest, if it has one, is
	// anywhere at the hypervisor. found is what the guest found at its last start.
	held  func(m *v1alpha1.Machine) bool
	found func(m *v1alpha1.Machine) string
	// sizes are the CPUs and the size of the disk root of a Machine as made.
	sizes func(m *v1alpha1.Machine) (cpus int, root string)
}

// rig drives Machines on a site, in a namespace whose layer 2 is played by the test.
type rig struct {
	*stand
	site   *site
	config *rest.Config
	clock  clock
}

// clock is the time of the processes of a rig. It runs, and can be advanced, so that no
// test waits for the end of a back-off.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// newRig makes a namespace with a network. at makes the site for it.
func newRig(t *testing.T, at func(*rig) *site) *rig {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t)
	r := &rig{stand: &stand{T: t, namespace: server.Namespace(t)}, config: server.Config()}
	var err error
	if r.kube, err = kube.New(server.Config(), "test", testKinds...); err != nil {
		t.Fatal(err)
	}
	r.create(&v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	feed.Run(t, server.Config(), r.namespace, r.layer2(), feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"})
	r.site = at(r)
	return r
}

// errKilled is what a process gets from every request after it was killed.
var errKilled = errors.New("the process was killed")

// harm is done to one request of a function.
type harm struct {
	// call is what the request does, and nth which of its kind it is, from 1.
	call string
	nth  int
	// kind is before, after or kill: the request does not arrive, its answer does
	// not, or the process ends when it has arrived.
	kind string
}

func (h harm) String() string { return fmt.Sprintf("%s %s #%d", h.kind, h.call, h.nth) }

// wire is between a function and everything outside. It counts the requests by
// what they do, and harms one of them.
type wire struct {
	mu    sync.Mutex
	harm  harm
	dead  bool
	count map[string]int
	order []string
	// answer answers a request instead of the server, where it is set and returns one.
	answer func(*http.Request) *http.Response
}

// varying is what of a URL differs from run to run.
var varying = regexp.MustCompile(`UPID:[^/]+|\bm[0-9a-z]*-?[0-9]+[a-z-]*|t[0-9]+-[a-z0-9]+|[0-9]{3,}`)

func callOf(req *http.Request) string {
	return req.Method + " " + varying.ReplaceAllString(req.URL.Path, "*")
}

// through makes w the transport of requests.
func (w *wire) through(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		harmed, err := w.next(callOf(req))
		if err != nil {
			return nil, err
		}
		if harmed == "before" {
			return nil, errors.New("connection refused by the test")
		}
		if w.answer != nil {
			if res := w.answer(req); res != nil {
				return res, nil
			}
		}
		res, err := next.RoundTrip(req)
		if err != nil || harmed == "" {
			return res, err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return nil, errors.New("connection reset by the test")
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// next counts a call, and says what is done to it.
func (w *wire) next(call string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return "", errKilled
	}
	if w.count == nil {
		w.count = map[string]int{}
	}
	if w.count[call] == 0 {
		w.order = append(w.order, call)
	}
	w.count[call]++
	if call != w.harm.call || w.count[call] != w.harm.nth {
		return "", nil
	}
	w.dead = w.harm.kind == "kill"
	return w.harm.kind, nil
}

// harms are all that can be done to what a run did. To lose the answer to a read is
// the same as to lose the read.
func (w *wire) harms() (all []harm) {
	for _, call := range w.order {
		if strings.HasPrefix(call, http.MethodGet) {
			all = append(all, harm{call, 1, "before"})
			continue
		}
		for nth := 1; nth <= min(w.count[call], 2); nth++ {
			all = append(all, harm{call, nth, "before"}, harm{call, nth, "after"}, harm{call, nth, "kill"})
		}
	}
	return all
}

// writes are the harms that can be done to what a run wrote.
func (w *wire) writes() []harm {
	return slices.DeleteFunc(w.harms(), func(h harm) bool { return strings.HasPrefix(h.call, http.MethodGet) })
}

// revived starts the process again if it was killed, and reports whether it was.
func (w *wire) revived() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.dead
	w.dead = false
	return was
}

// process makes a function as it is after its start, whose requests all go through
// w.
func (r *rig) process(w *wire) *function {
	r.Helper()
	config := rest.CopyConfig(r.config)
	config.Wrap(w.through)
	client, err := kube.New(config, hypervisor.FunctionName, kinds()...)
	if err != nil {
		r.Fatal(err)
	}
	return &function{kube: client, connect: testConnector(client, r.namespace, w.through), local: kubevirt.Local(client), now: r.clock.now}
}

// machine makes a small Machine on the site.
func (r *rig) machine(name string) *v1alpha1.Machine {
	r.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.site.provider},
		CloudInit: &v1alpha1.CloudInit{UserData: "#cloud-config\n" + strings.Repeat("# long\n", 300)},
	}}
	r.create(m)
	return m
}

// look makes an event that asks for a look at a Machine.
func look(namespace, name string) event.Event {
	e := event.New()
	e.SetID("1")
	e.SetSource("/test")
	e.SetType(events.TypeResync)
	events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: namespace, Name: name}.Set(&e, "")
	return e
}

// drive delivers events about a Machine to new processes until it is as done wants
// it. m is nil once the Machine is gone.
func (r *rig) drive(name string, w *wire, what string, done func(m *v1alpha1.Machine) bool) *v1alpha1.Machine {
	r.Helper()
	// soon is the broker's first pause between two tries.
	const soon, pause, patience = 20 * time.Millisecond, 100 * time.Millisecond, 90 * time.Second
	f := r.process(w)
	for began := time.Now(); ; {
		err := deliver(r.Context(), f, look(r.namespace, name))
		if w.revived() {
			f = r.process(w)
			continue
		}
		m := &v1alpha1.Machine{}
		if err := r.kube.Get(r.Context(), r.namespace, name, m); kube.NotFound(err) {
			m = nil
		} else if err != nil {
			r.Fatal(err)
		}
		if done(m) {
			return m
		}
		if m != nil && hasFailed(m) {
			r.clock.advance(max(m.Status.NextCheckTime.Sub(r.clock.now()), 0))
		}
		if time.Since(began) > patience {
			r.Fatalf("%s %s (%s): not after %s: %v; %+v", name, what, w.harm, patience, err, m)
		}
		if err == nil {
			time.Sleep(pause)
		} else {
			time.Sleep(soon)
		}
	}
}

// edit changes the spec of a Machine.
func (r *rig) edit(name string, change func(*v1alpha1.Machine)) {
	r.Helper()
	err := kube.OnConflict(func() error {
		m := &v1alpha1.Machine{}
		if err := r.kube.Get(r.Context(), r.namespace, name, m); err != nil {
			return err
		}
		before := m.DeepCopy()
		change(m)
		_, err := r.kube.Patch(r.Context(), before, m)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
}

func running(m *v1alpha1.Machine) bool {
	return m != nil && m.Status.Phase == v1alpha1.MachineRunning && ready("MachineRunning")(m) && m.Status.ObservedGeneration == m.Generation
}

func gone(m *v1alpha1.Machine) bool { return m == nil }

// deliver hands one event to a process.
func deliver(ctx context.Context, f *function, e event.Event) error {
	_, err := f.handle(ctx, e)
	return err
}

// testConnector connects to all backends. It reads credentials from a namespace, and wraps the
// connections that do not use the client.
func testConnector(client *kube.Client, namespace string, wrap func(http.RoundTripper) http.RoundTripper) hypervisor.Connector {
	return connectBackends(backends, hypervisor.Environment{Home: client, Credentials: hypervisor.Credentials{Home: client, Namespaces: []string{namespace}}, Namespace: kube.Namespace(os.Getenv), Wrap: wrap})
}

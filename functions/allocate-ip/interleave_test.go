package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

// schedule lets one process at a time send one request to the API server, in an order that a seed
// determines. A process may die before or after any write, and any read may return an earlier answer.
// After each write of an allocation, schedule checks that no address is allocated twice.
type schedule struct {
	*env
	random  *rand.Rand
	arrive  chan turn
	ended   chan struct{}
	history map[string][][]byte
	trace   []string
	clock   time.Time
	// addresses is the number of addresses. There is one more holder than addresses.
	addresses int
}

// turn is a process that waits for its turn to send a request.
type turn struct {
	name string
	come chan struct{}
}

// worker is a process that reconciles one object after another. When it dies, another one takes its
// place.
type worker struct {
	*schedule
	name string
	dead bool
	next http.RoundTripper
}

// requestOutcome says how a request ends.
type requestOutcome int

const (
	lives requestOutcome = iota
	diesBefore
	diesAfter
	readsOld
)

func (s *schedule) outcomeOf(r *http.Request) requestOutcome {
	n := s.random.IntN(100)
	switch {
	case r.Method == http.MethodGet && n < 10 && len(s.history[r.URL.String()]) > 0:
		return readsOld
	case r.Method != http.MethodGet && n < 6:
		return diesBefore
	case r.Method != http.MethodGet && n < 12:
		return diesAfter
	default:
		return lives
	}
}

// await waits for the turn of a process.
func (s *schedule) await(name string) {
	t := turn{name, make(chan struct{})}
	s.arrive <- t
	<-t.come
}

// RoundTrip implements http.RoundTripper.
func (w *worker) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.dead {
		return nil, errDead
	}
	if strings.Contains(r.URL.Path, "/events") { // Kubernetes Events decide nothing
		return w.next.RoundTrip(r)
	}
	w.await(w.name)
	what := w.outcomeOf(r)
	w.trace = append(w.trace, fmt.Sprintf("%s: %s %s %d", w.name, r.Method, r.URL.Path[strings.LastIndex(r.URL.Path, w.namespace)+len(w.namespace):], what))
	switch what {
	case readsOld:
		old := w.history[r.URL.String()]
		return answer(r, old[w.random.IntN(len(old))]), nil
	case diesBefore:
		w.dead = true
		return nil, errDead
	}
	res, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet && res.StatusCode == http.StatusOK {
		w.history[r.URL.String()] = append(w.history[r.URL.String()], body)
	}
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") {
		w.checkUnique()
	}
	if what == diesAfter {
		w.dead = true
		return nil, errDead
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

func answer(r *http.Request, body []byte) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// checkUnique checks the invariant: no two IPAllocations are Allocated, and no two NetworkConfigurations
// Ready, with the same address.
func (s *schedule) checkUnique() {
	users := &v1alpha1.NetworkConfigurationList{}
	if err := s.kube.List(s.Context(), s.namespace, "", users); err != nil {
		s.Error(err)
		return
	}
	shown := map[string]string{}
	for _, nc := range users.Items {
		for _, i := range nc.Status.NetworkInterfaces {
			if nc.Status.Phase != v1alpha1.NetworkConfigurationReady || len(i.IPv4Addresses) == 0 {
				continue
			}
			address := i.IPv4Addresses[0]
			if other, taken := shown[address]; taken {
				s.Errorf("%s and %s are both Ready with %s", other, nc.Name, address)
			}
			shown[address] = nc.Name
		}
	}
	list := &v1alpha2.IPAllocationList{}
	if err := s.kube.List(s.Context(), s.namespace, "", list); err != nil {
		s.Error(err)
		return
	}
	holders := map[string]string{}
	for _, a := range list.Items {
		if a.Status.Phase != v1alpha2.IPAllocationAllocated {
			continue
		}
		if other, taken := holders[a.Status.Address]; taken {
			s.Errorf("%s and %s are both Allocated with %s", other, a.Name, a.Status.Address)
		}
		holders[a.Status.Address] = a.Name
	}
}

// run schedules the processes until all have ended. It often stays with one process for a while, so
// that another acts on stale reads.
func (s *schedule) run(processes int) {
	busy := processes
	var last string
	var waiting []turn
	for busy > 0 || len(waiting) > 0 {
		if busy > 0 {
			select {
			case t := <-s.arrive:
				waiting = append(waiting, t)
			case <-s.ended:
			}
			busy--
			continue
		}
		slices.SortFunc(waiting, func(a, b turn) int { return strings.Compare(a.name, b.name) })
		i := slices.IndexFunc(waiting, func(t turn) bool { return t.name == last })
		if i < 0 || s.random.IntN(10) < 3 {
			i = s.random.IntN(len(waiting))
		}
		last = waiting[i].name
		close(waiting[i].come)
		waiting = slices.Delete(waiting, i, i+1)
		busy++
	}
}

// spawn starts a process that has no memory of an earlier one.
func (s *schedule) spawn(name string) *function {
	config := rest.CopyConfig(s.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &worker{schedule: s, name: name, next: next} })
	f := s.replica(config)
	f.sender = silent{}
	f.now = func() time.Time { return s.clock }
	f.leases.now = f.now
	return f
}

// operations is the number of operations of each process.
const operations = 8

// doOperation does one operation that the Broker, the garbage collector, a user or the clock may cause
// at any time.
func (s *schedule) doOperation(f *function, name string) {
	ctx, holder := s.Context(), fmt.Sprintf("c%d", s.random.IntN(s.addresses+1))
	switch s.random.IntN(10) {
	case 0, 1, 2:
		_ = f.configurations().reconcileConfiguration(ctx, s.namespace, holder, true)
	case 3, 4:
		_ = f.allocations().reconcileAllocation(ctx, s.namespace, holder+"-eth0", events.TypeResync)
	case 5:
		address := netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", 10+s.random.IntN(s.addresses)))
		_, _ = f.leases.deleteUnused(ctx, s.namespace, leaseName("net", address))
	case 6:
		s.trace = append(s.trace, name+": delete "+holder)
		s.remove(holder)
		_ = f.allocations().reconcileAllocation(ctx, s.namespace, holder+"-eth0", events.TypeRefUpdate)
	case 7:
		s.trace = append(s.trace, name+": delete the allocation of "+holder)
		_ = s.kube.Delete(ctx, &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: holder + "-eth0"}})
		_ = f.allocations().reconcileAllocation(ctx, s.namespace, holder+"-eth0", events.TypeRefUpdate)
	case 8:
		address := ""
		if n := s.random.IntN(s.addresses + 1); n > 0 {
			address = fmt.Sprintf("10.0.0.%d", 9+n)
		}
		s.trace = append(s.trace, name+": "+holder+" asks for "+address)
		_ = s.changeRequest(holder, address)
		_ = f.configurations().reconcileConfiguration(ctx, s.namespace, holder, false)
	default:
		s.clock = s.clock.Add(40 * time.Second)
		s.create(holder)
	}
}

func (s *schedule) remove(holder string) {
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: holder}
	_ = s.kube.Delete(s.Context(), &v1alpha1.NetworkConfiguration{ObjectMeta: meta})
	if s.random.IntN(2) == 0 { // otherwise the garbage collector deletes it later
		meta.Name += "-eth0"
		_ = s.kube.Delete(s.Context(), &v1alpha2.IPAllocation{ObjectMeta: meta})
	}
}

func (s *schedule) create(holder string) {
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: holder}}
	nc.Spec.NetworkNamespaceName, nc.Spec.NetworkInterfaces = "net", []v1alpha1.InterfaceSpec{eth0()}
	_ = s.kube.Create(s.Context(), nc)
}

// TestInterleavings runs concurrent processes in many orders. At no time do two objects have the same
// address, and a full resync repairs whatever dead processes have left.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	base := setUp(t)
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			own := *base
			own.T, own.namespace = t, base.server.Namespace(t)
			s := &schedule{
				env: &own, random: rand.New(rand.NewPCG(seed, 1)), clock: time.Now(),
				arrive: make(chan turn), ended: make(chan struct{}), history: map[string][][]byte{},
			}
			s.addresses = int(1 + seed%2)
			last := v1alpha2.IPv4Address(fmt.Sprintf("10.0.0.%d", 9+s.addresses))
			s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.10", IPv4RangeEnd: last, TTLSeconds: int32(60 * (seed / 2 % 2))})
			const processes = 3
			for i := range s.addresses + 1 {
				s.create(fmt.Sprintf("c%d", i))
			}
			for i := range processes {
				go func() {
					defer func() { s.ended <- struct{}{} }()
					name := fmt.Sprintf("p%d", i)
					s.await(name)
					for range operations {
						s.doOperation(s.spawn(name), name)
					}
				}()
			}
			s.run(processes)
			s.reconcileAll()
			if t.Failed() {
				t.Log("\n" + strings.Join(s.trace, "\n"))
			}
		})
	}
}

// reconcileAll reconciles every object, as resync does, until nothing changes.
func (s *schedule) reconcileAll() {
	s.Helper()
	f := s.replica(s.config)
	f.sender, f.now, f.leases.now = silent{}, func() time.Time { return s.clock }, func() time.Time { return s.clock }
	for i := range s.addresses + 1 {
		_ = s.changeRequest(fmt.Sprintf("c%d", i), "") // requests for the same address conflict, so each holder requests any address
	}
	for range 4 {
		allocations := &v1alpha2.IPAllocationList{}
		if err := s.kube.List(s.Context(), s.namespace, "", allocations); err != nil {
			s.Fatal(err)
		}
		for _, a := range allocations.Items {
			owner := metav1.GetControllerOf(&a)
			nc := &v1alpha1.NetworkConfiguration{}
			if err := s.kube.Get(s.Context(), s.namespace, owner.Name, nc); kube.NotFound(err) || nc.UID != owner.UID {
				_ = s.kube.Delete(s.Context(), &a) // the garbage collector's part
			}
			_ = kube.OnConflict(func() error {
				return f.allocations().reconcileAllocation(s.Context(), s.namespace, a.Name, events.TypeResync)
			})
		}
		for i := range s.addresses {
			address := netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", 10+i))
			if _, err := f.leases.deleteUnused(s.Context(), s.namespace, leaseName("net", address)); err != nil {
				s.Error(err)
			}
		}
		for i := range s.addresses + 1 {
			_ = kube.OnConflict(func() error {
				return f.configurations().reconcileConfiguration(s.Context(), s.namespace, fmt.Sprintf("c%d", i), true)
			})
		}
		s.checkUnique()
	}
	s.requireConsistentLeases()
	alive := &v1alpha1.NetworkConfigurationList{}
	if err := s.kube.List(s.Context(), s.namespace, "", alive); err != nil {
		s.Fatal(err)
	}
	served := 0
	for _, nc := range alive.Items {
		if network.IsConfigured(&nc) {
			served++
		}
	}
	if want := min(s.addresses, len(alive.Items)); served != want {
		s.Errorf("%d of %d holders are served, want %d", served, len(alive.Items), want)
	}
}

// TestProcessDiesWhileItReleases kills the function after each write of a release, while another
// NetworkConfiguration waits for the address.
func TestProcessDiesWhileItReleases(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.network("net", "10.0.0.0/30", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
	names := []string{"holder", "waiter"}
	check := &schedule{env: s}
	for n := range int32(5) {
		for _, name := range names {
			check.create(name)
			if err := s.replica(s.config).configurations().reconcileConfiguration(t.Context(), s.namespace, name, true); err != nil {
				t.Fatal(err)
			}
		}
		meta := metav1.ObjectMeta{Namespace: s.namespace, Name: names[0] + "-eth0"}
		if err := errors.Join(
			s.kube.Delete(t.Context(), &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: names[0]}}),
			s.kube.Delete(t.Context(), &v1alpha2.IPAllocation{ObjectMeta: meta}),
		); err != nil {
			t.Fatal(err)
		}
		config := rest.CopyConfig(s.config)
		d := &dying{}
		d.left.Store(n)
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { d.RoundTripper = rt; return d })
		dies := s.replica(config)
		dies.sender = silent{}
		_ = dies.allocations().reconcileAllocation(t.Context(), s.namespace, meta.Name, events.TypeRefUpdate)
		for _, who := range []string{names[1], names[0], names[1]} {
			if err := s.replica(s.config).allocations().reconcileAllocation(t.Context(), s.namespace, who+"-eth0", events.TypeResync); err != nil {
				t.Fatal(err)
			}
			check.checkUnique()
		}
		s.awaitReason(names[1], "NetworkConfigured")
		slices.Reverse(names) // the present holder is first in the next round
	}
	s.requireConsistentLeases()
}

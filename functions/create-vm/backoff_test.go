package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

func TestBackOff(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := &v1alpha1.Machine{}
	var delays []string
	for range 9 {
		recordFailure(m, now)
		delays = append(delays, m.Status.NextCheckTime.Sub(now).Round(time.Second).String())
	}
	if got, want := strings.Join(delays, " "), "1s 2s 4s 8s 16s 32s 1m0s 1m0s 1m0s"; got != want {
		t.Errorf("the delay between two attempts doubles up to a minute: got %s, want %s", got, want)
	}
	setCondition(m, v1alpha1.ConditionReady, false, "ProxmoxApiError", "")
	if remainingBackOff(m, now) == 0 {
		t.Error("a failed Machine waits for its next attempt")
	}
	m.Generation++
	if remainingBackOff(m, now) != 0 || hasFailed(m) {
		t.Error("a new generation is tried at once and resets the number of failures")
	}
}

func TestIsRepeated(t *testing.T) {
	t.Parallel()
	task := func(action, id string) *v1alpha1.ProviderTask { return &v1alpha1.ProviderTask{Action: action, ID: id} }
	cases := map[string]struct {
		reason      string
		before, now *v1alpha1.ProviderTask
		want        bool
	}{
		"first":   {"no task ran before", nil, task("upload", "UPID:1"), false},
		"end":     {"no task is left", task("start", "UPID:1"), nil, false},
		"running": {"the same task still runs", task("create", "UPID:1"), task("create", "UPID:1"), false},
		"next":    {"another task follows", task("create", "UPID:1"), task("start", "UPID:2"), false},
		"again":   {"the same task is due again, so it had no effect", task("upload", "UPID:1"), task("upload", "UPID:2"), true},
		"unnamed": {"a task without an ID has ended once it is looked up", task("create", hypervisor.UnnamedTask), task("create", hypervisor.UnnamedTask), true},
	}
	for name, tc := range cases {
		if got := isRepeated(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

// runPeriod delivers events about a Machine for a length of simulated time: one a second, as a Broker
// does that redelivers often, alternately of resync and of the Machine, and one for each write of the Machine, as the event
// source does. It returns how often each request was made.
func (e *env) runPeriod(name string, length time.Duration) map[string]int {
	e.Helper()
	return e.runPeriodOn(&hypervisortest.Wire{}, name, length)
}

func (e *env) runPeriodOn(w *hypervisortest.Wire, name string, length time.Duration) map[string]int {
	e.Helper()
	f := e.process(w)
	own := hypervisortest.ResyncEvent(e.Namespace, name)
	own.SetType(events.TypeUpdate)
	redelivered := []event.Event{hypervisortest.ResyncEvent(e.Namespace, name), own}
	seconds := int(length / time.Second)
	for i := range seconds {
		before := w.Requests(http.MethodPatch, "/machines/")
		_ = deliver(e.Context(), f, redelivered[i%len(redelivered)])
		for range 50 {
			now := w.Requests(http.MethodPatch, "/machines/")
			if now == before {
				break
			}
			before = now
			_ = deliver(e.Context(), f, own)
		}
		e.Clock.Advance(time.Second)
	}
	return w.Count
}

// TestProxmoxBackOff counts the requests of a Machine whose task fails at each attempt, or succeeds
// without an effect.
func TestProxmoxBackOff(t *testing.T) {
	t.Parallel()
	const create, start = "POST /api2/json/nodes/pve*/qemu", "POST /api2/json/nodes/pve*/qemu/*/status/start"
	cases := map[string]struct {
		reason, request, ready string
		rule                   faults.Rule
		change                 func(*v1alpha1.Machine)
	}{
		"Create": {reason: "a volume is removed while it is used", request: create, ready: "ProxmoxApiError", change: func(m *v1alpha1.Machine) {
			m.Spec.OS = &v1alpha1.MachineOS{ISOURI: "local:iso/removed.iso"}
		}, rule: faults.Rule{Operation: "task/qmcreate", Error: "volume 'local:iso/removed.iso' does not exist"}},
		"Refused": {reason: "Proxmox VE rejects the request itself", request: create, ready: "ProxmoxApiError", rule: faults.Rule{Operation: "POST /nodes/*/qemu", Error: "500 the cluster is not quorate"}},
		"Start":   {reason: "QEMU does not start", request: start, ready: "ProxmoxApiError", rule: faults.Rule{Operation: "task/qmstart", Error: "start failed: QEMU exited with code 1"}},
		"Full":    {reason: "no host has as much free memory as it reports", request: start, ready: "", rule: faults.Rule{Operation: "task/qmstart", Error: "start failed: Cannot allocate memory"}},
		"Left":    {reason: "a volume of an earlier virtual machine is in the way", request: create, ready: "ProxmoxApiError", rule: faults.Rule{Operation: "task/qmcreate", Error: "lvcreate: logical volume already exists"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &faults.Plan{}
			r, sim := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
			if err := errors.Join(plan.Set(tc.rule), sim.AddVolume("local", "iso/removed.iso", "https://x/removed.iso", 1<<28)); err != nil {
				t.Fatal(err)
			}
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
				Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider},
			}}
			if tc.change != nil {
				tc.change(m)
			}
			r.Create(m)
			first := sum(r.runPeriod("m1", 10*time.Minute), tc.request)
			if first < 3 || first > 20 {
				t.Errorf("%s: %d attempts in ten minutes, want at most 20", tc.reason, first)
			}
			count := r.runPeriod("m1", 10*time.Minute)
			if later := sum(count, tc.request); later < 5 || later > 10 {
				t.Errorf("%s: %d attempts in the next ten minutes, want at most one a minute: %v", tc.reason, later, count)
			}
			if writes := sum(count, "PATCH /apis/vitistack.io"); writes > 60 {
				t.Errorf("%s: %d writes in ten minutes", tc.reason, writes)
			}
			m = r.Drive("m1", &hypervisortest.Wire{}, "reports what fails", func(m *v1alpha1.Machine) bool {
				return hasFailed(m) && (tc.ready == "" || hypervisortest.HasReason(tc.ready)(m))
			})
			r.requireImmediateRetry(m, tc.request)
			if err := plan.Set(); err != nil {
				t.Fatal(err)
			}
			r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.OS = nil })
			if m = r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning); hasFailed(m) {
				t.Errorf("a running Machine has no failures, got %d", m.Status.Failures)
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}

// requireImmediateRetry checks that a new spec and the annotation each end a back-off once.
func (e *env) requireImmediateRetry(m *v1alpha1.Machine, request string) {
	e.Helper()
	e.Edit(m.Name, func(m *v1alpha1.Machine) { m.Spec.RestartToken = "again" })
	if n := sum(e.runPeriod(m.Name, time.Second), request); n == 0 {
		e.Error("a new generation is not tried at once")
	}
	e.runPeriod(m.Name, 4*time.Minute)
	e.Edit(m.Name, func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReconcile, "now")
	})
	if n := sum(e.runPeriod(m.Name, 3*time.Second), request); n == 0 || n > 4 {
		e.Errorf("the annotation causes %d attempts, want 1", n)
	}
}

// TestKubeVirtBackOff counts the requests of a Machine while KubeVirt rejects its virtual machine,
// with a different message each time.
func TestKubeVirtBackOff(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"Webhook": http.StatusInternalServerError, "Quota": http.StatusForbidden, "Busy": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newEnv(t, kubevirtSite)
			r.CreateMachine("m1")
			var tries atomic.Int64
			refuse := func(req *http.Request) *http.Response {
				if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/virtualmachines") {
					return nil
				}
				body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":%d,"message":"refused, request %d"}`, status, tries.Add(1))
				return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req}
			}
			r.runPeriodOn(&hypervisortest.Wire{Answer: refuse}, "m1", 10*time.Minute)
			first := tries.Swap(0)
			w := &hypervisortest.Wire{Answer: refuse}
			count := r.runPeriodOn(w, "m1", 5*time.Minute)
			if later := tries.Load(); later > 6 || later == 0 || first > 20 {
				t.Errorf("%d attempts in ten minutes, then %d in five: %v", first, later, count)
			}
			r.DeleteMachine(r.Drive("m1", &hypervisortest.Wire{}, "runs once KubeVirt accepts it", hypervisortest.IsRunning), &hypervisortest.Wire{})
		})
	}
}

// TestRequestedAttempt requests an attempt by the annotation, and ends the delivery after a number of its writes. The next delivery does not wait for
// the back-off.
func TestRequestedAttempt(t *testing.T) {
	t.Parallel()
	for writes := range int64(3) {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			t.Parallel()
			r := newEnv(t, kubevirtSite)
			r.CreateMachine("m1")
			var tries, written atomic.Int64
			failure := func(req *http.Request) *http.Response {
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
					Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`))}
			}
			refuse := &hypervisortest.Wire{Answer: func(req *http.Request) *http.Response {
				if req.Method != http.MethodPost || !strings.HasSuffix(req.URL.Path, "/virtualmachines") {
					return nil
				}
				tries.Add(1)
				return failure(req)
			}}
			r.runPeriodOn(refuse, "m1", 2*time.Minute)
			for last := tries.Load(); tries.Load() == last; {
				r.runPeriodOn(refuse, "m1", time.Second)
			}
			r.Edit("m1", func(m *v1alpha1.Machine) {
				metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReconcile, "now")
			})
			ending := &hypervisortest.Wire{Answer: func(req *http.Request) *http.Response {
				if written.Load() == writes && req.Method != http.MethodGet {
					return failure(req)
				}
				if req.Method != http.MethodGet {
					written.Add(1)
				}
				return nil
			}}
			if err := deliver(t.Context(), r.process(ending), hypervisortest.ResyncEvent(r.Namespace, "m1")); err == nil {
				t.Fatal("the delivery has not ended early")
			}
			before := tries.Load()
			_ = deliver(t.Context(), r.process(refuse), hypervisortest.ResyncEvent(r.Namespace, "m1"))
			if tries.Load() == before {
				t.Errorf("after %d writes, the next delivery waits for the back-off", written.Load())
			}
		})
	}
}

// sum counts the requests whose description begins with prefix. In it, pve* stands for any node.
func sum(count map[string]int, prefix string) (n int) {
	for call, times := range count {
		for i := range 4 {
			if text := strings.Replace(prefix, "pve*", fmt.Sprintf("pve%d", i), 1); call == text || strings.HasPrefix(call, text) && strings.HasPrefix(prefix, http.MethodPatch) {
				n += times
				break
			}
		}
	}
	return n
}

// claimVMID claims a VMID of a Proxmox VE for a machine of another MachineProvider.
func (e *env) claimVMID(provider, endpoint string, vmid int) {
	e.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: defaultNamespace, Name: fmt.Sprintf("vmid-%s-%s-%d", provider, e.Namespace, vmid),
		Labels: map[string]string{v1alpha1.LabelManagedBy: hypervisor.FunctionName, v1alpha1.LabelHolder: "other-" + e.Namespace},
		Annotations: map[string]string{
			"vitistack.io/machine-provider": provider, "vitistack.io/endpoint": endpoint, "vitistack.io/provider-id": fmt.Sprintf("proxmox://pve1/%d", vmid), "vitistack.io/memory-bytes": "0",
		},
	}}
	if err := e.Kube.Create(e.Context(), lease); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = e.Kube.Delete(context.Background(), lease) })
}

// TestHiddenVMID has the VMID of a Machine used by a virtual machine that the provider's token cannot
// see, because the token has rights on a pool only. A machine of another MachineProvider has claimed the next VMID. Proxmox VE refuses to create a virtual
// machine at once, and the task that clones one fails, unless its host has the other virtual machine.
func TestHiddenVMID(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ image, host string }{"Create": {host: "pve3"}, "Clone": {image: "debian", host: "pve3"}, "CloneSameHost": {image: "debian", host: "pve2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inPool := slices.Clone(pveGrants)
			inPool[0].Path = "/pool/tenants"
			r, sim := newPVE(t, proxmoxsim.Options{Pools: []string{"tenants"}, Users: []proxmoxsim.User{{Name: pveUser, Grants: inPool}}}, func(p *v1alpha1.MachineProvider) {
				p.Spec.Proxmox = &v1alpha1.ProxmoxOptions{VMIDStart: 500, VMIDEnd: 510, Pool: "tenants"}
			})
			template := map[string]string{"name": "debian", "template": "1", "scsi0": "local-lvm:4", "boot": "order=scsi0"}
			if err := sim.AddMachine(proxmoxsim.Machine{ID: 9000, Node: "pve2", Pool: "tenants", Config: template}, "https://x/debian.qcow2"); err != nil {
				t.Fatal(err)
			}
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
				Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider},
			}}
			if tc.image != "" {
				m.Spec.OS = &v1alpha1.MachineOS{ImageID: tc.image}
			}
			r.Create(m)
			taken := preferredVMID(m, 500, 510)
			hidden := map[string]string{"name": "hidden", "memory": "1024"}
			if err := sim.AddMachine(proxmoxsim.Machine{ID: taken, Node: tc.host, Config: maps.Clone(hidden)}, ""); err != nil {
				t.Fatal(err)
			}
			next := 500 + (taken-500+1)%11
			provider := r.providerNow()
			r.claimVMID("other", strings.TrimPrefix(provider.Spec.Endpoint.URL, "https://"), next)
			w := &hypervisortest.Wire{}
			r.Drive("m1", w, "reports that its VMID is taken", hypervisortest.HasReason("VMIDTaken"))
			m = r.Drive("m1", w, "runs under the next VMID", hypervisortest.IsRunning)
			if vmid := vmidOf(m); vmid == taken || vmid == next || sum(w.Count, "POST /api2/json/nodes/pve*/qemu") > 3 {
				t.Errorf("VMID %d, requests %v", vmid, w.Count)
			}
			for _, vm := range sim.Machines() {
				if vm.ID == vmidOf(m) && (vm.Pool != "tenants" || !strings.Contains(vm.Config["tags"], string(m.UID))) {
					t.Errorf("the pool and the tags are missing: %+v", vm)
				}
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
			for _, vm := range sim.Machines() {
				if vm.ID == taken && (!maps.Equal(vm.Config, hidden) || vm.Starts > 0) {
					t.Errorf("the other virtual machine has changed: %v", vm)
				}
			}
		})
	}
}

package kubevirt

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/vitistack/stack/tests/sim/faults"
)

func inPhase(phase virtv1.VirtualMachineInstancePhase) *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "i"}}
	vmi.Status.Phase = phase
	return vmi
}

func asking(action virtv1.StateChangeRequestAction, uid types.UID) virtv1.VirtualMachineStatus {
	r := virtv1.VirtualMachineStateChangeRequest{Action: action}
	if uid != "" {
		r.UID = &uid
	}
	return virtv1.VirtualMachineStatus{StateChangeRequests: []virtv1.VirtualMachineStateChangeRequest{r}}
}

func TestDecideRun(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	later := metav1.NewTime(now.Add(time.Minute))
	leaving := inPhase(virtv1.Running)
	leaving.DeletionTimestamp = &later
	cases := map[string]struct {
		reason   string
		strategy virtv1.VirtualMachineRunStrategy
		status   virtv1.VirtualMachineStatus
		vmi      *virtv1.VirtualMachineInstance
		want     runDecision
	}{
		"AlwaysNone":      {"an instance should always exist", virtv1.RunStrategyAlways, virtv1.VirtualMachineStatus{}, nil, start},
		"AlwaysRunning":   {"a running instance is kept", virtv1.RunStrategyAlways, virtv1.VirtualMachineStatus{}, inPhase(virtv1.Running), keep},
		"AlwaysFailed":    {"a failed instance is replaced", virtv1.RunStrategyAlways, virtv1.VirtualMachineStatus{}, inPhase(virtv1.Failed), stop},
		"AlwaysSucceeded": {"an instance that shut itself down is replaced", virtv1.RunStrategyAlways, virtv1.VirtualMachineStatus{}, inPhase(virtv1.Succeeded), stop},
		"AlwaysRestart":   {"a restart is a request to stop", virtv1.RunStrategyAlways, asking(virtv1.StopRequest, "i"), inPhase(virtv1.Running), stop},
		"AlwaysOther":     {"the request is about another instance", virtv1.RunStrategyAlways, asking(virtv1.StopRequest, "x"), inPhase(virtv1.Running), keep},
		"AlwaysBackoff": {"a failed start is retried after a back-off", virtv1.RunStrategyAlways,
			virtv1.VirtualMachineStatus{StartFailure: &virtv1.VirtualMachineStartFailure{RetryAfterTimestamp: &later}}, nil, delayed},
		"Deleting":       {"an instance that is being deleted is waited for", virtv1.RunStrategyHalted, virtv1.VirtualMachineStatus{}, leaving, keep},
		"HaltedNone":     {"Halted has no instance", virtv1.RunStrategyHalted, virtv1.VirtualMachineStatus{}, nil, keep},
		"HaltedRunning":  {"Halted stops an instance", virtv1.RunStrategyHalted, virtv1.VirtualMachineStatus{}, inPhase(virtv1.Running), stop},
		"ManualNone":     {"Manual waits for a request", virtv1.RunStrategyManual, virtv1.VirtualMachineStatus{}, nil, keep},
		"ManualStart":    {"Manual follows a request", virtv1.RunStrategyManual, asking(virtv1.StartRequest, ""), nil, start},
		"ManualFailed":   {"Manual keeps a failed instance", virtv1.RunStrategyManual, virtv1.VirtualMachineStatus{}, inPhase(virtv1.Failed), keep},
		"ManualStop":     {"Manual stops an instance on request", virtv1.RunStrategyManual, asking(virtv1.StopRequest, "i"), inPhase(virtv1.Running), stop},
		"RerunNew":       {"a machine that is new to the strategy is started", virtv1.RunStrategyRerunOnFailure, virtv1.VirtualMachineStatus{}, nil, start},
		"RerunStopped":   {"a stopped machine is not started", virtv1.RunStrategyRerunOnFailure, virtv1.VirtualMachineStatus{RunStrategy: virtv1.RunStrategyRerunOnFailure}, nil, keep},
		"RerunFailed":    {"a failure starts another instance", virtv1.RunStrategyRerunOnFailure, virtv1.VirtualMachineStatus{}, inPhase(virtv1.Failed), rerun},
		"RerunSucceeded": {"a success starts no other instance", virtv1.RunStrategyRerunOnFailure, virtv1.VirtualMachineStatus{}, inPhase(virtv1.Succeeded), stop},
		"OnceNone":       {"once starts", virtv1.RunStrategyOnce, virtv1.VirtualMachineStatus{}, nil, start},
		"OnceFailed":     {"Once starts no second instance", virtv1.RunStrategyOnce, virtv1.VirtualMachineStatus{}, inPhase(virtv1.Failed), keep},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := decideRun(&virtv1.VirtualMachine{Status: tc.status}, tc.vmi, tc.strategy, now)
			if got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestStartFailure(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	vm := &virtv1.VirtualMachine{}
	waits := []time.Duration{10 * time.Second, 40 * time.Second, 90 * time.Second, 160 * time.Second, 250 * time.Second, 5 * time.Minute}
	for i, want := range waits {
		failed := inPhase(virtv1.Failed)
		failed.UID = types.UID(rune('a' + i))
		vm.Status.StartFailure = startFailure(vm, failed, virtv1.RunStrategyAlways, 10*time.Second, now)
		if got := backoffLeft(vm, now); got != want || vm.Status.StartFailure.ConsecutiveFailCount != i+1 {
			t.Errorf("failure %d: wait %v, count %d; want %v", i+1, got, vm.Status.StartFailure.ConsecutiveFailCount, want)
		}
		if again := startFailure(vm, failed, virtv1.RunStrategyAlways, 10*time.Second, now); again != vm.Status.StartFailure {
			t.Errorf("failure %d is counted twice", i+1)
		}
	}
	ran := inPhase(virtv1.Failed)
	ran.Status.PhaseTransitionTimestamps = []virtv1.VirtualMachineInstancePhaseTransitionTimestamp{{Phase: virtv1.Running}}
	if startFailure(vm, ran, virtv1.RunStrategyAlways, 10*time.Second, now) != nil {
		t.Error("a running machine still counts failed starts")
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Unix(1000, 0))
	with := func(vmi *virtv1.VirtualMachineInstance, c virtv1.VirtualMachineInstanceCondition) *virtv1.VirtualMachineInstance {
		setCondition(vmi, c, now)
		return vmi
	}
	stopping := inPhase(virtv1.Running)
	stopping.DeletionTimestamp = &now
	filling := &cdiv1.DataVolume{Status: cdiv1.DataVolumeStatus{Phase: cdiv1.ImportInProgress}}
	broken := filling.DeepCopy()
	broken.Status.Conditions = []cdiv1.DataVolumeCondition{{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error"}}
	cases := map[string]struct {
		reason string
		view   machineView
		status virtv1.VirtualMachineStatus
		want   virtv1.VirtualMachinePrintableStatus
	}{
		"Stopped":  {"it has no instance", machineView{strategy: virtv1.RunStrategyHalted}, virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusStopped},
		"Starting": {"its instance is pending", machineView{vmi: inPhase(virtv1.Pending)}, virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusStarting},
		"Running":  {"its instance runs", machineView{vmi: inPhase(virtv1.Running)}, virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusRunning},
		"Paused": {"its CPUs are stopped", machineView{vmi: with(inPhase(virtv1.Running),
			virtv1.VirtualMachineInstanceCondition{Type: virtv1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue})},
			virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusPaused},
		"Stopping": {"its instance is being deleted", machineView{vmi: stopping}, virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusStopping},
		"NoClaim": {"a claim is missing", machineView{vmi: with(inPhase(virtv1.Pending),
			virtv1.VirtualMachineInstanceCondition{Type: virtv1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse, Reason: reasonPVCNotFound})},
			virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusPvcNotFound},
		"NoNode": {"no node has room", machineView{vmi: with(inPhase(virtv1.Scheduling),
			virtv1.VirtualMachineInstanceCondition{Type: podScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable})},
			virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusUnschedulable},
		"Importing": {"a disk is being imported", machineView{storage: storageView{imports: []*cdiv1.DataVolume{filling}}},
			virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusProvisioning},
		"ImportFailed": {"the import fails", machineView{storage: storageView{imports: []*cdiv1.DataVolume{broken}}},
			virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusDataVolumeError},
		"Binding": {"a claim has no volume", machineView{
			strategy: virtv1.RunStrategyAlways, vmi: inPhase(virtv1.Pending),
			storage: storageView{claims: []*corev1.PersistentVolumeClaim{{}}}},
			virtv1.VirtualMachineStatus{}, virtv1.VirtualMachineStatusWaitingForVolumeBinding},
		"CrashLoop": {"it waits after a failed start", machineView{strategy: virtv1.RunStrategyAlways},
			virtv1.VirtualMachineStatus{StartFailure: &virtv1.VirtualMachineStartFailure{ConsecutiveFailCount: 1}},
			virtv1.VirtualMachineStatusCrashLoopBackOff},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := printable(&virtv1.VirtualMachine{Status: tc.status}, tc.view); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func node(name, cpu, memory string) *corev1.Node {
	n, err := Hypervisor{Name: name, CPU: cpu, Memory: memory}.node()
	if err != nil {
		panic(err)
	}
	return n
}

func TestPlace(t *testing.T) {
	t.Parallel()
	spec := virtv1.VirtualMachineInstanceSpec{Domain: virtv1.DomainSpec{
		CPU: &virtv1.CPU{Sockets: 2, Cores: 5, Threads: 2}, Memory: &virtv1.Memory{Guest: new(resource.MustParse("4Gi"))},
	}}
	cordoned := node("c", "8", "64Gi")
	cordoned.Spec.Unschedulable = true
	cases := map[string]struct {
		reason string
		nodes  []*corev1.Node
		used   map[string]load
		want   string
		why    string
	}{
		"Emptiest": {"the node with the most free memory is selected", []*corev1.Node{node("a", "8", "16Gi"), node("b", "8", "32Gi")}, nil, "b", ""},
		"Name":     {"the name decides between equal nodes", []*corev1.Node{node("b", "8", "16Gi"), node("a", "8", "16Gi")}, nil, "a", ""},
		"Used":     {"memory in use counts", []*corev1.Node{node("a", "8", "16Gi"), node("b", "8", "32Gi")}, map[string]load{"b": {memory: 20 << 30}}, "a", ""},
		"Ratio":    {"ten virtual CPUs share one", []*corev1.Node{node("a", "2", "16Gi")}, nil, "a", ""},
		"Full": {"each reason is counted", []*corev1.Node{node("a", "1", "2Gi"), node("b", "8", "2Gi"), cordoned}, nil, "",
			"0/3 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, 2 Insufficient memory. " +
				"preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."},
		"None": {"a cluster without nodes has a message of its own", nil, nil, "", "no nodes available to schedule pods"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, why := place(&spec, tc.nodes, tc.used)
			if got != tc.want || why != tc.why {
				t.Errorf("%s: got %q, %q\nwant %q, %q", tc.reason, got, why, tc.want, tc.why)
			}
		})
	}
}

func TestAssign(t *testing.T) {
	t.Parallel()
	h := newHosts(netip.MustParsePrefix("10.9.0.0/28"))
	nodes := []*corev1.Node{node("a", "64", "512Gi")}
	seen := map[netip.Addr]bool{}
	var all []*virtv1.VirtualMachineInstance
	for i := range 13 {
		vmi := inPhase(virtv1.Pending)
		vmi.UID = types.UID(rune('a' + i))
		p, why := h.assign(vmi, nodes, all)
		if why != "" || seen[p.address] || !h.pods.Contains(p.address) {
			t.Fatalf("instance %d got %v (%s), which is in use or out of range", i, p.address, why)
		}
		if again, _ := h.assign(vmi, nodes, all); again != p {
			t.Errorf("instance %d got %v, then %v", i, p, again)
		}
		seen[p.address] = true
		all = append(all, vmi)
	}
	last := inPhase(virtv1.Pending)
	last.UID = "last"
	if p, _ := h.assign(last, nodes, all); p.address.IsValid() {
		t.Errorf("the network's gateway or last address %s was allocated", p.address)
	}
	h.release(last.UID)
	h.release(all[0].UID)
	if p, _ := h.assign(last, nodes, all); !p.address.IsValid() {
		t.Error("a released address is not allocated again")
	}
}

func TestBootImage(t *testing.T) {
	t.Parallel()
	disk := func(order uint) virtv1.Disk {
		if order == 0 {
			return virtv1.Disk{}
		}
		return virtv1.Disk{BootOrder: &order}
	}
	cases := map[string]struct {
		reason string
		specs  []virtv1.Disk
		images []string
		want   string
	}{
		"First":   {"without a boot order the first disk with content boots", []virtv1.Disk{disk(0), disk(0), disk(0)}, []string{"", "b", "c"}, "b"},
		"Order":   {"the boot order decides", []virtv1.Disk{disk(2), disk(1)}, []string{"a", "b"}, "b"},
		"Blank":   {"a blank disk is skipped for the installer after it", []virtv1.Disk{disk(1), disk(2)}, []string{"", "iso"}, "iso"},
		"Ordered": {"with a boot order, other disks do not boot", []virtv1.Disk{disk(1), disk(0)}, []string{"", "b"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var disks []Disk
			for _, image := range tc.images {
				disks = append(disks, Disk{Image: image})
			}
			if got := bootImage(tc.specs, disks); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCacheKeepsTheNewest(t *testing.T) {
	t.Parallel()
	at := func(uid types.UID, version string, finalizers ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, ResourceVersion: version, Finalizers: finalizers}}
		return n
	}
	c := newCache[*corev1.Node]()
	var changes []string
	c.changed = func(n *corev1.Node) { changes = append(changes, n.ResourceVersion) }
	c.remember(at("1", "9"))
	_ = c.Update(at("1", "8")) // the watch is late
	_ = c.Update(at("1", "9"))
	_ = c.Update(at("1", "10"))
	_ = c.Delete(at("1", "11"))
	c.remember(at("1", "10")) // a late answer about a deleted object
	if got := c.get("", "n"); got != nil {
		t.Errorf("a deleted object came back as %s", got.ResourceVersion)
	}
	c.remember(at("2", "12"))
	_ = c.Delete(at("1", "11")) // a late deletion of its predecessor
	if got := c.get("", "n"); got == nil || got.UID != "2" {
		t.Errorf("the successor is %v, want the object with UID 2", got)
	}
	_ = c.Replace([]any{}, "11") // a list from before its creation
	if c.get("", "n") == nil {
		t.Error("a list that is older than an object removed it")
	}
	ended := at("2", "13")
	ended.DeletionTimestamp = new(metav1.Now())
	c.remember(ended)
	if c.get("", "n") != nil {
		t.Error("an object without finalizers stays after its deletion")
	}
	if diff := cmp.Diff([]string{"9", "10", "11", "12", "13"}, changes); diff != "" {
		t.Errorf("reported changes (-want +got):\n%s", diff)
	}
}

func TestPace(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	if err := plan.Set(faults.Rule{Operation: "dv/import", Error: "no route", Times: 1}); err != nil {
		t.Fatal(err)
	}
	p := newPace(plan)
	s := step{"u", "dv/import/images.example.org"}
	for range 2 {
		if _, fault := p.wait(s, 0); fault.Error != "no route" {
			t.Errorf("an unfinished step has the fault %q, want the same fault each time", fault.Error)
		}
	}
	p.done(s)
	if left, fault := p.wait(s, time.Hour); fault.Error != "" || left < 59*time.Minute {
		t.Errorf("the next step has %v left and fault %q", left, fault.Error)
	}
	p.forget("u")
	if len(p.steps) != 0 {
		t.Errorf("%d steps are left of a deleted object", len(p.steps))
	}
}

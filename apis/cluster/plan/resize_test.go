package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// sizeClass returns a MachineClass with a disk root, and one more if data is not empty.
func sizeClass(name string, cores int32, root, data v1alpha1.Size, change func(*v1alpha1.MachineDisk)) v1alpha1.MachineClass {
	c := v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineClassSpec{
		Resources: v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: cores}, Memory: &v1alpha1.MachineMemory{Size: "8Gi"}},
		Disks:     []v1alpha1.MachineDisk{{Name: v1alpha1.RootDisk, Size: root}},
	}}
	if data != "" {
		c.Spec.Disks = append(c.Spec.Disks, v1alpha1.MachineDisk{Name: "data", Size: data})
	}
	if change != nil {
		change(&c.Spec.Disks[0])
	}
	return c
}

func TestResizeObjection(t *testing.T) {
	t.Parallel()
	classes := []v1alpha1.MachineClass{
		sizeClass("two", 2, "40Gi", "", nil), sizeClass("eight", 8, "40Gi", "", nil), sizeClass("wide", 2, "60Gi", "", nil),
		sizeClass("data", 2, "40Gi", "10Gi", nil),
		sizeClass("fast", 2, "40Gi", "", func(d *v1alpha1.MachineDisk) { d.StorageClass = "fast" }),
		sizeClass("block", 2, "40Gi", "", func(d *v1alpha1.MachineDisk) { d.VolumeMode = "Block" }),
	}
	small := func(m *v1alpha1.Machine) {
		m.Status.Template = &v1alpha1.MachineTemplate{Name: "two", MachineClass: &classes[0].Spec}
	}
	for name, tc := range map[string]struct {
		reason   string
		from, to string
		change   func(m *v1alpha1.Machine, g *Group)
		want     string
	}{
		"CPU":         {"a restart changes the CPUs", "two", "eight", nil, ""},
		"FewerCPUs":   {"also to fewer", "eight", "two", nil, ""},
		"LargerDisk":  {"create-vm grows disks", "two", "wide", nil, ""},
		"BuiltIn":     {"a size that is built in needs no class", "small", "large", nil, ""},
		"SmallerDisk": {"its data would be lost", "large", "small", nil, "disk root would shrink from 80Gi to 20Gi"},
		"NewDisk":     {"nothing formats it", "two", "data", nil, "disk data is new"},
		"NoDisk":      {"its data would be lost", "data", "two", nil, "disk data would be removed"},
		"Class":       {"a disk cannot move to another class", "two", "fast", nil, "disk root has another class or mode"},
		"Mode":        {"a volume has one mode", "two", "block", nil, "disk root has another class or mode"},
		"Unknown":     {"the new class does not exist", "two", "none", nil, `its new size is unknown: TemplateNotFound: template "none" does not exist`},
		"Forgotten":   {"the present class does not exist", "none", "two", nil, `its present size is unknown: TemplateNotFound: template "none" does not exist`},
		"Kept":        {"the status has a copy of a deleted class", "none", "wide", func(m *v1alpha1.Machine, _ *Group) { small(m) }, ""},
		"NotApplied": {"the disk has not grown to the template of the spec yet", "wide", "eight",
			func(m *v1alpha1.Machine, _ *Group) { small(m) }, ""},
		"Overridden": {"the disk of the machine's own spec is that of both sizes", "large", "small", func(m *v1alpha1.Machine, _ *Group) {
			m.Spec.Disks = []v1alpha1.MachineDisk{{Name: v1alpha1.RootDisk, Size: "100Gi"}}
		}, ""},
		"Provider": {"a virtual machine does not move", "two", "eight", func(_ *v1alpha1.Machine, g *Group) {
			g.Properties.ProviderRef = &v1alpha1.ProviderReference{Name: "proxmox"}
		}, "a virtual machine stays at its provider"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, g := &v1alpha1.Machine{}, Group{Properties: v1alpha1.MachineProperties{Template: tc.to}}
			m.Spec.Template, m.Status.Provider = tc.from, "kubevirt"
			if tc.change != nil {
				tc.change(m, &g)
			}
			if got := ResizeObjection(m, g, classes); got != tc.want && (tc.want == "" || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestSelectResizes(t *testing.T) {
	t.Parallel()
	at := func(name string, seconds int64) PoolMachine {
		return PoolMachine{name: name, created: time.Unix(seconds, 0)}
	}
	a, b, c := at("a", 1), at("b", 2), at("c", 3)
	leaving, replaced, protected := a, a, a
	leaving.Leaving, replaced.Marked, protected.Protected = true, true, true
	all := map[string]string{"a": "x", "b": "x", "c": "x"}
	busy := []v1alpha1.MachineResize{{Name: "a"}}
	for name, tc := range map[string]struct {
		reason  string
		present []PoolMachine
		limit   int
		inPlace map[string]string
		busy    []v1alpha1.MachineResize
		want    string
	}{
		"Oldest":    {"one at a time, the oldest first", []PoolMachine{c, b, a}, 1, all, nil, "a"},
		"Two":       {"as many as the limit", []PoolMachine{c, b, a}, 2, all, nil, "a b"},
		"Busy":      {"a machine that is being resized counts", []PoolMachine{a, b, c}, 1, all, busy, ""},
		"OneMore":   {"another one within the limit", []PoolMachine{a, b, c}, 2, all, busy, "b"},
		"Leaving":   {"a machine in removal counts", []PoolMachine{leaving, b}, 1, all, nil, ""},
		"Replaced":  {"a machine that is replaced counts, and is not resized", []PoolMachine{replaced, b}, 1, all, nil, ""},
		"Protected": {"a protected machine is resized: protection is about its deletion", []PoolMachine{protected, b}, 1, all, nil, "a"},
		"Current":   {"machines that fit their pool stay", []PoolMachine{a, b}, 2, map[string]string{"b": "x"}, nil, "b"},
	} {
		if got := strings.Join(SelectResizes(tc.present, tc.limit, tc.inPlace, tc.busy), " "); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}

func TestNextResizes(t *testing.T) {
	t.Parallel()
	p := Plan{Groups: []Group{{Pool: v1alpha1.ControlPlanePool, Role: v1alpha1.RoleControlPlane, Rollout: RolloutLimits{MaxUnavailable: 3}}, {Pool: "a", Role: v1alpha1.RoleWorker, Rollout: RolloutLimits{MaxUnavailable: 2}}}}
	machines := map[string]*v1alpha1.Machine{}
	for name, pool := range map[string]string{"c-cp-0": "cp", "c-cp-1": "cp", "c-a-0": "a", "c-a-1": "a", "c-a-2": "a"} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelWorkerGroup: pool}}}
		if pool == "cp" {
			m.Labels = map[string]string{v1alpha1.LabelClusterRole: v1alpha1.RoleControlPlane}
		}
		machines[name] = m
	}
	for name, tc := range map[string]struct {
		reason         string
		outdated, busy []string
		want           string
	}{
		"ControlPlane": {"one control plane at a time, and before the workers", []string{"c-cp-0", "c-cp-1", "c-a-0"}, nil, "c-cp-0"},
		"Busy":         {"no other control plane while one is resized, and no worker either", []string{"c-cp-1", "c-a-0"}, []string{"c-cp-0"}, ""},
		"Workers":      {"maxUnavailable workers", []string{"c-a-0", "c-a-1", "c-a-2"}, nil, "c-a-0 c-a-1"},
		"OtherGroup":   {"no control plane while a worker is resized", []string{"c-cp-0", "c-a-1"}, []string{"c-a-0"}, ""},
		"Next":         {"the next worker within the limit", []string{"c-a-1", "c-a-2"}, []string{"c-a-0"}, "c-a-1"},
		"None":         {"every machine is as its pool says", nil, nil, ""},
	} {
		outdated := Outdated{InPlace: map[string]string{}}
		for _, n := range tc.outdated {
			outdated.InPlace[n] = "x"
		}
		var busy []v1alpha1.MachineResize
		for _, n := range tc.busy {
			busy = append(busy, v1alpha1.MachineResize{Name: n})
		}
		if got := strings.Join(p.NextResizes("c", machines, outdated, busy), " "); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}

func TestNextResizeStep(t *testing.T) {
	t.Parallel()
	now := time.Unix(100000, 0)
	resize := func(step v1alpha1.ResizeStep, bootID string, age time.Duration) v1alpha1.MachineResize {
		return v1alpha1.MachineResize{Name: "m", Step: step, From: "small", To: "large", BootID: bootID, Since: metav1.NewTime(now.Add(-age))}
	}
	const draining, restarting, failed = v1alpha1.ResizeDraining, v1alpha1.ResizeRestarting, v1alpha1.ResizeFailed
	for name, tc := range map[string]struct {
		reason             string
		resize             v1alpha1.MachineResize
		template, served   string
		notReady, required bool
		node               *Node
		target             string
		want               ResizeStep
	}{
		"Drain":     {"the node is drained first", resize(draining, "", 0), "small", "", false, false, &Node{Ready: true, BootID: "1"}, "large", ResizeDrain},
		"TakenBack": {"the pool has the template of the machine again", resize(draining, "", 0), "small", "", false, false, &Node{Ready: true, BootID: "1"}, "small", ResizeCancel},
		"Replaced":  {"the machine has to be replaced now", resize(draining, "", 0), "small", "", false, false, &Node{Ready: true, BootID: "1"}, "", ResizeCancel},
		"Restart":   {"the restart has not been requested, or the request is lost", resize(restarting, "1", 0), "small", "", false, false, &Node{Ready: true, BootID: "1"}, "large", ResizeRestart},
		"Restarted": {"the restart is requested once", resize(restarting, "1", time.Minute), "large", "", false, false, &Node{Ready: true, BootID: "1"}, "large", ResizeWait},
		"OldNode":   {"the Node is Ready until Kubernetes misses its kubelet", resize(restarting, "1", time.Minute), "large", "new", false, false, &Node{Ready: true, BootID: "1"}, "large", ResizeWait},
		"NotReady":  {"the node has booted and is not Ready", resize(restarting, "1", time.Minute), "large", "new", false, false, &Node{BootID: "2"}, "large", ResizeWait},
		"Pending":   {"the hypervisor says that the size waits for another restart", resize(restarting, "1", time.Minute), "large", "new", false, true, &Node{Ready: true, BootID: "2"}, "large", ResizeWait},
		"Unserved":  {"the node has booted by itself before the restart", resize(restarting, "1", time.Minute), "large", "", false, false, &Node{Ready: true, BootID: "2"}, "large", ResizeWait},
		"Machine":   {"the Machine is not Ready", resize(restarting, "1", time.Minute), "large", "new", true, false, &Node{Ready: true, BootID: "2"}, "large", ResizeWait},
		"Finish":    {"the node is Ready since the restart", resize(restarting, "1", time.Minute), "large", "new", false, false, &Node{Ready: true, BootID: "2"}, "large", ResizeFinish},
		"Late":      {"the node comes back after the failure", resize(failed, "1", time.Hour), "large", "new", false, false, &Node{Ready: true, BootID: "2"}, "large", ResizeFinish},
		"NoAPI":     {"the only control plane restarts", resize(restarting, "1", time.Minute), "large", "new", false, false, nil, "large", ResizeWait},
		"Timeout":   {"the node has not come back", resize(restarting, "1", time.Hour), "large", "new", false, false, nil, "large", ResizeFail},
		"Failed":    {"a user has to act", resize(failed, "1", time.Minute), "large", "new", true, false, nil, "large", ResizeWait},
		"Unfit":     {"the machine that has failed has to be replaced", resize(failed, "1", time.Minute), "large", "new", true, false, nil, "", ResizeCancel},
		"Changed":   {"a restart goes on after a change of the pool", resize(restarting, "1", time.Minute), "large", "", false, false, nil, "", ResizeWait},
	} {
		m := &v1alpha1.Machine{}
		m.Spec.Template, m.Spec.RestartToken = tc.template, "new"
		m.Status.RestartToken, m.Status.Phase, m.Status.IPAddresses = tc.served, v1alpha1.MachineRunning, []string{"192.0.2.1"}
		ready := metav1.ConditionTrue
		if tc.notReady {
			ready = metav1.ConditionFalse
		}
		m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready}}
		if tc.required {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionRestartRequired, Status: metav1.ConditionTrue})
		}
		if got := NextResizeStep(tc.resize, m, tc.node, tc.target, now); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStorageReady, Status: metav1.ConditionFalse})
		if got := NextResizeStep(tc.resize, m, tc.node, tc.target, now); got == ResizeFinish {
			t.Errorf("%s: the resize is finished while a disk of the machine grows", name)
		}
	}
}

func TestRenewResize(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Unix(100000, 0))
	const draining, restarting, failed = v1alpha1.ResizeDraining, v1alpha1.ResizeRestarting, v1alpha1.ResizeFailed
	for name, tc := range map[string]struct {
		reason     string
		step       v1alpha1.ResizeStep
		bootID     string
		generation int64
		target     string
		// want is the step, the template, the boot ID and the generation after it.
		want string
	}{
		"Drain":      {"a node that is drained gets the present size", draining, "", 2, "huge", "Draining huge  2"},
		"Restart":    {"a restart goes on, and a failure of it begins again", restarting, "1", 2, "huge", "Restarting large 1 1"},
		"SameSpec":   {"a failure waits for a change of the spec", failed, "1", 1, "large", "Failed large 1 1"},
		"DrainAgain": {"a drain that has timed out begins again", failed, "", 2, "large", "Draining large  2"},
		"WaitAgain":  {"the machine has its size, and gets more time", failed, "1", 2, "large", "Restarting large 1 2"},
		"OtherSize":  {"another size needs another restart, without another drain", failed, "1", 2, "small", "Restarting small 9 2"},
	} {
		r := v1alpha1.MachineResize{Step: tc.step, To: "large", BootID: tc.bootID, Generation: 1}
		RenewResize(&r, tc.target, &Node{BootID: "9"}, tc.generation, now)
		if got := fmt.Sprintf("%s %s %s %d", r.Step, r.To, r.BootID, r.Generation); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}

// TestOutdatedMachines has machines of a pool of which one can be resized in place.
func TestOutdatedMachines(t *testing.T) {
	t.Parallel()
	machines := map[string]*v1alpha1.Machine{}
	for name, template := range map[string]string{"a": "small", "b": "large", "c": "medium"} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelWorkerGroup: "pool", v1alpha1.LabelMachineTemplate: template}}}
		m.Spec.Template = template
		machines[name] = m
	}
	p := Plan{Groups: []Group{{Pool: "pool", Role: v1alpha1.RoleWorker, Properties: v1alpha1.MachineProperties{Template: "medium"}, InPlace: true}}}
	const want = "1 machine still to be resized in place, the first is a (template small instead of medium); " +
		"1 machine still to be replaced, the first is b (template large instead of medium, which is not possible in place: disk root would shrink from 80Gi to 40Gi)"
	outdated := p.OutdatedMachines(machines, nil)
	if got := outdated.Describe(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var targets []string
	for _, name := range []string{"a", "b", "c"} {
		targets = append(targets, p.ResizeTarget(machines[name], outdated))
	}
	if want := []string{"medium", "", "medium"}; !slices.Equal(targets, want) {
		t.Errorf("the targets are %q, want %q", targets, want)
	}
	p.Groups[0].InPlace = false
	if got := p.OutdatedMachines(machines, nil); len(got.InPlace) > 0 || len(got.Replaced) != 2 {
		t.Errorf("a pool that is replaced: %+v", got)
	}
}

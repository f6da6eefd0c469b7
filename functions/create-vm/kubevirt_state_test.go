package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	kubevirtsim "github.com/vitistack/stack/tests/sim/kubevirt"
)

// condition returns status, reason and message of a condition, or an empty string.
func condition(m *v1alpha1.Machine, kind string) string {
	c := meta.FindStatusCondition(m.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// TestProblemsShow makes KubeVirt fail and recover.
func TestProblemsShow(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		rule   faults.Rule
		image  string
		want   map[string]string
	}{
		"full": {reason: "no host has room", rule: faults.Rule{Operation: "vmi/schedule", Error: "0/3 nodes are available: 3 Insufficient memory."},
			want: map[string]string{"Ready": "False InsufficientResources: no host has room for the machine: add hosts, or ask for less CPU or memory (", "VirtualMachineReady": "False VMFailed"}},
		"disk": {reason: "the storage provides no volume", rule: faults.Rule{Operation: "pvc/bind", Error: "out of space"},
			want: map[string]string{"Ready": "False Provisioning", "StorageReady": "False PVCPending: waiting for a volume for vm-root", "VirtualMachineReady": "True VMCreated"}},
		"crash": {reason: "the domain does not start", rule: faults.Rule{Operation: "vmi/run", Error: "qemu unexpectedly closed the monitor"},
			want: map[string]string{"Ready": "False CrashLoop", "VirtualMachineReady": "False VMFailed"}},
		"image": {reason: "the image cannot be read", rule: faults.Rule{Operation: "dv/import", Error: "404 Not Found"}, image: "https://images.example/linux.qcow2",
			want: map[string]string{"Ready": "False ImageImportFailed"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &faults.Plan{}
			if err := plan.Set(tc.rule); err != nil {
				t.Fatal(err)
			}
			s := setUpWith(t, kubevirtsim.Options{Plan: plan, Times: kubevirtsim.Times{CrashBackoff: 1}})
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: v1alpha1.MachineSpec{Template: "small"}}
			if tc.image != "" {
				m.Spec.OS = &v1alpha1.MachineOS{ImageID: tc.image}
			}
			s.Create(m)
			s.awaitMachine("vm", tc.reason, func(m *v1alpha1.Machine) bool {
				for kind, want := range tc.want {
					if !strings.HasPrefix(condition(m, kind), want) {
						return false
					}
				}
				return m.Status.Phase == v1alpha1.MachineCreating
			})
			if err := plan.Set(); err != nil {
				t.Fatal(err)
			}
			m = s.awaitMachine("vm", "runs after the fault has ended", hypervisortest.IsRunning)
			if !meta.IsStatusConditionTrue(m.Status.Conditions, "StorageReady") || !meta.IsStatusConditionTrue(m.Status.Conditions, "VirtualMachineReady") {
				t.Errorf("%s: conditions %+v", tc.reason, m.Status.Conditions)
			}
			if err := s.Kube.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			s.awaitEmpty()
		})
	}
}

// TestLiveChange checks which changes KubeVirt applies at once, and that the condition RestartRequired
// reports the others.
func TestLiveChange(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: v1alpha1.MachineSpec{Template: "small"}})
	s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
	edit := func(change func(*v1alpha1.Machine)) { s.Edit("vm", change) }
	edit(func(m *v1alpha1.Machine) {
		m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "30Gi"}, {Name: "data", Size: "1Gi", StorageClass: "fast-ssd"}}
	})
	m := s.awaitMachine("vm", "has its disks", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && meta.IsStatusConditionTrue(m.Status.Conditions, "StorageReady")
	})
	claim := &corev1.PersistentVolumeClaim{}
	for name, size := range map[string]string{"vm-root": "30Gi", "vm-data": "1Gi"} {
		if err := s.Kube.Get(t.Context(), s.Namespace, name, claim); err != nil {
			t.Fatal(err)
		}
		if got := claim.Status.Capacity.Storage().String(); got != size {
			t.Errorf("%s is %s, want %s", name, got, size)
		}
	}
	if got := condition(m, "RestartRequired"); got != "" {
		t.Errorf("disks are resized and plugged in at once: %s", got)
	}
	edit(func(m *v1alpha1.Machine) {
		m.Spec.Resources = &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 4}}
	})
	s.awaitMachine("vm", "reports that it needs a restart", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && strings.HasPrefix(condition(m, "RestartRequired"), "True SpecChanged: a change waits for the next restart: write a new value into spec.restartToken")
	})
	edit(func(m *v1alpha1.Machine) { m.Spec.RestartToken = "now" })
	s.awaitMachine("vm", "has its cores", func(m *v1alpha1.Machine) bool {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		err := s.Kube.Get(t.Context(), s.Namespace, "vm", vmi)
		return err == nil && vmi.Spec.Domain.CPU.Cores == 4 && hypervisortest.IsRunning(m) && condition(m, "RestartRequired") == ""
	})
}

// TestWaitingHotplugIsReported changes sockets and memory of a machine that KubeVirt does not migrate, and of one that it migrates.
func TestWaitingHotplugIsReported(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		migrate bool
	}{
		"waits":    {"KubeVirt has no workloadUpdateMethods, and no condition of the virtual machine", false},
		"migrates": {"a live migration gives both to the guest", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUpWith(t, kubevirtsim.Options{LiveMigrate: tc.migrate})
			s.Create(machineWith("vm", func(m *v1alpha1.MachineSpec) {
				m.Disks = []v1alpha1.MachineDisk{{Name: "root", AccessMode: v1alpha1.DiskAccessMode(corev1.ReadWriteMany)}}
			}))
			s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
			s.Edit("vm", func(m *v1alpha1.Machine) {
				m.Spec.Resources = &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Sockets: 2}, Memory: &v1alpha1.MachineMemory{Size: "4Gi"}}
			})
			if !tc.migrate {
				s.awaitMachine("vm", "reports what waits", func(m *v1alpha1.Machine) bool {
					return hypervisortest.IsRunning(m) && strings.HasPrefix(condition(m, "RestartRequired"), "True SpecChanged: the machine gets 2 sockets instead of 1 and 4Gi of memory instead of 2Gi by a live migration or at its next restart")
				})
				s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "now" })
			}
			s.awaitMachine("vm", "has both, and waits for nothing: "+tc.reason, func(m *v1alpha1.Machine) bool {
				vmi := &kubevirtv1.VirtualMachineInstance{}
				err := s.Kube.Get(t.Context(), s.Namespace, "vm", vmi)
				return err == nil && vmi.Status.CurrentCPUTopology != nil && vmi.Status.CurrentCPUTopology.Sockets == 2 && vmi.Status.Memory.GuestRequested.String() == "4Gi" &&
					hypervisortest.IsRunning(m) && m.Status.ObservedGeneration == m.Generation && condition(m, "RestartRequired") == ""
			})
		})
	}
}

// TestGrowingDiskIsReported has the storage take its time to grow the disk of a running machine.
func TestGrowingDiskIsReported(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	s := setUpWith(t, kubevirtsim.Options{Plan: plan})
	s.Create(machineWith("vm", func(*v1alpha1.MachineSpec) {}))
	s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
	if err := plan.Set(faults.Rule{Operation: "pvc/resize", Error: "the pool is full"}); err != nil {
		t.Fatal(err)
	}
	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "30Gi"}} })
	s.awaitMachine("vm", "reports that its disk grows", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && condition(m, "StorageReady") == "False PVCPending: waiting for the volume to grow of vm-root"
	})
	if err := plan.Set(); err != nil {
		t.Fatal(err)
	}
	s.awaitMachine("vm", "has its larger disk", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && meta.IsStatusConditionTrue(m.Status.Conditions, "StorageReady")
	})
}

// TestRefusedDiskBlocksNothing requests disks that cannot be as requested, together with another size and power state, which do
// not depend on them.
func TestRefusedDiskBlocksNothing(t *testing.T) {
	t.Parallel()
	s := setUpWith(t, kubevirtsim.Options{StorageClasses: []kubevirtsim.StorageClass{{Name: "unexpandable"}}})
	root := v1alpha1.MachineDisk{Name: "root", Size: "20Gi", StorageClass: "unexpandable"}
	s.Create(machineWith("vm", func(m *v1alpha1.MachineSpec) { m.Disks = []v1alpha1.MachineDisk{root} }))
	s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
	edit := func(power v1alpha1.PowerState, cores int32, disks ...v1alpha1.MachineDisk) {
		s.Edit("vm", func(m *v1alpha1.Machine) {
			m.Spec.PowerState, m.Spec.Disks = power, disks
			m.Spec.Resources = &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: cores}}
		})
	}
	await := func(phase v1alpha1.MachinePhase, reason string, cores uint32) {
		m := s.awaitMachine("vm", "is "+string(phase)+" with reason "+reason, func(m *v1alpha1.Machine) bool {
			return m.Status.Phase == phase && hypervisortest.HasReason(reason)(m) && m.Status.ObservedGeneration == m.Generation
		})
		vm := &kubevirtv1.VirtualMachine{}
		if err := s.Kube.Get(t.Context(), s.Namespace, "vm", vm); err != nil {
			t.Fatal(err)
		}
		if got := vm.Spec.Template.Spec.Domain.CPU.Cores; got != cores {
			t.Errorf("%s: got %d cores, want %d: %s", reason, got, cores, condition(m, "Ready"))
		}
	}
	larger := root
	larger.Size = "30Gi"
	edit(v1alpha1.PowerStopped, 3, larger)
	await(v1alpha1.MachineStopped, "DiskCannotGrow", 3)
	edit(v1alpha1.PowerRunning, 3, larger)
	await(v1alpha1.MachineRunning, "DiskCannotGrow", 3)
	edit(v1alpha1.PowerRunning, 3, root)
	await(v1alpha1.MachineRunning, "MachineRunning", 3)
	data := v1alpha1.MachineDisk{Name: "data", Size: "1Gi", StorageClass: "late-" + s.Namespace}
	edit(v1alpha1.PowerStopped, 2, root, data)
	await(v1alpha1.MachineStopped, "StorageClassNotFound", 2)
	edit(v1alpha1.PowerStopped, 2, root) // a disk that does not exist can be removed
	await(v1alpha1.MachineStopped, "Stopped", 2)
	edit(v1alpha1.PowerStopped, 2, root, data)
	await(v1alpha1.MachineStopped, "StorageClassNotFound", 2)
	data.StorageClass = "unexpandable"
	edit(v1alpha1.PowerRunning, 2, root, data)
	await(v1alpha1.MachineRunning, "MachineRunning", 2)
}

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/sim/faults"
	kubevirtsim "github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestExamplesRun(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	for _, name := range []string{"prod-network", "storage-network"} {
		s.Create(&v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	cases := map[string]struct {
		reason     string
		cores      uint32
		memory     string
		disks      map[string]string
		interfaces int
	}{
		"basic-vm":      {reason: "template medium is 2 cores, 4Gi, 40Gi", cores: 2, memory: "4Gi", disks: map[string]string{"basic-vm-root": "40Gi"}, interfaces: 1},
		"custom-vm":     {reason: "overrides take precedence over the template, disks are added", cores: 4, memory: "8Gi", disks: map[string]string{"custom-vm-root": "20Gi", "custom-vm-data": "100Gi"}, interfaces: 1},
		"networked-vm":  {reason: "each network is an interface", cores: 2, memory: "4Gi", disks: map[string]string{"networked-vm-root": "40Gi"}, interfaces: 2},
		"cloud-init-vm": {reason: "template large is 4 cores, 8Gi, 80Gi", cores: 4, memory: "8Gi", disks: map[string]string{"cloud-init-vm-root": "80Gi"}, interfaces: 1},
	}
	for name := range cases {
		s.example(name+".yaml", &v1alpha1.Machine{})
	}
	for name, tc := range cases {
		m := s.awaitMachine(name, "runs, and reports all of its parts", func(m *v1alpha1.Machine) bool {
			all := hypervisortest.HasReason("MachineRunning")(m)
			for _, c := range []string{"VirtualMachineReady", "StorageReady", "NetworkReady"} {
				all = all && meta.IsStatusConditionTrue(m.Status.Conditions, c)
			}
			return all
		})
		vm := &kubevirtv1.VirtualMachine{}
		if err := s.Kube.Get(t.Context(), s.Namespace, name, vm); err != nil {
			t.Fatal(err)
		}
		if labels := vm.Labels; labels["vitistack.io/machine"] != name || labels["vitistack.io/managed-by"] != "kubevirt-operator" || !metav1.IsControlledBy(vm, m) {
			t.Errorf("%s: labels %v, owners %v", name, labels, vm.OwnerReferences)
		}
		domain := vm.Spec.Template.Spec.Domain
		if domain.CPU.Cores != tc.cores || domain.Memory.Guest.String() != tc.memory || len(domain.Devices.Interfaces) != tc.interfaces {
			t.Errorf("%s: %s: got %d cores, %s, %d interfaces", name, tc.reason, domain.CPU.Cores, domain.Memory.Guest, len(domain.Devices.Interfaces))
		}
		claims := &corev1.PersistentVolumeClaimList{}
		if err := s.Kube.List(t.Context(), s.Namespace, "vitistack.io/machine="+name, claims); err != nil {
			t.Fatal(err)
		}
		sizes := map[string]string{}
		for _, c := range claims.Items {
			sizes[c.Name] = c.Spec.Resources.Requests.Storage().String()
		}
		if diff := cmp.Diff(tc.disks, sizes); diff != "" {
			t.Errorf("%s: %s: disks (-want +got):\n%s", name, tc.reason, diff)
		}
		if st := m.Status; len(st.IPAddresses) != tc.interfaces || st.NodeName == "" || st.VMName != name || st.VMIName != name {
			t.Errorf("%s: status %+v", name, st)
		}
	}
	for name := range cases {
		if err := s.Kube.Delete(t.Context(), &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitEmpty()
}

func TestMistakesWaitForTheirAuthor(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	machine := func(name string, change func(*v1alpha1.Machine)) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{Template: "small"}}
		change(m)
		return m
	}
	cases := map[string]struct {
		machine *v1alpha1.Machine
		reason  string
		says    string
		also    string
		fix     func(*v1alpha1.Machine)
	}{
		"template": {machine("template", func(m *v1alpha1.Machine) { m.Spec.Template = "huge" }), "TemplateNotFound", "write small, medium", "", func(m *v1alpha1.Machine) { m.Spec.Template = "large" }},
		"class": {machine("class", func(m *v1alpha1.Machine) {
			m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "data", Size: "1Gi", StorageClass: "slow"}}
		}), "StorageClassNotFound", "name one of fast-ssd, standard", "StorageReady False PVCPending", func(m *v1alpha1.Machine) { m.Spec.Disks[0].StorageClass = "standard" }},
		"secret": {machine("secret", func(m *v1alpha1.Machine) {
			m.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.CloudInitSecretReference{Name: "missing", Key: "userdata"}}
		}), "CloudInitSecretNotFound", "Secret missing does not exist: create it with the user data under the key userdata and the label vitistack.io/cloud-init=true", "NetworkReady True NetworkConfigured", func(m *v1alpha1.Machine) { m.Spec.CloudInit = nil }},
		"network": {machine("network", func(m *v1alpha1.Machine) {
			m.Spec.Networks = []v1alpha1.MachineNetwork{{Name: "eth0", NetworkName: "late"}}
		}), "NetworkConfigurationNotFound", "NetworkConfiguration late does not exist: create it", "NetworkReady False NetworkFailed", nil},
		"namespace": {machine("namespace", func(m *v1alpha1.Machine) { m.Spec.NetworkNamespaceName = "elsewhere" }), "NetworkNamespaceNotFound", "elsewhere", "NetworkReady False NetworkFailed",
			func(m *v1alpha1.Machine) { m.Spec.NetworkNamespaceName = "" }},
	}
	for _, tc := range cases {
		s.Create(tc.machine)
	}
	for name, tc := range cases {
		m := s.awaitMachine(name, "reports what to change", hypervisortest.HasReason(tc.reason))
		message := ""
		for _, c := range m.Status.Conditions {
			if c.Type == "Ready" {
				message = c.Message
			}
		}
		if !strings.Contains(message, tc.says) || m.Status.Phase != v1alpha1.MachinePending {
			t.Errorf("%s: phase %s, message %q, want %q in it", name, m.Status.Phase, message, tc.says)
		}
		if kind, want, _ := strings.Cut(tc.also, " "); !strings.HasPrefix(strings.Replace(condition(m, kind), ":", "", 1), want) {
			t.Errorf("%s: %s is %q, want %s", name, kind, condition(m, kind), want)
		}
		if tc.fix == nil {
			s.Create(&v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "late"}})
			continue
		}
		s.Edit(name, tc.fix)
	}
	for name := range cases {
		s.awaitMachine(name, "runs once the error is fixed", hypervisortest.HasReason("MachineRunning"))
	}
}

// TestEditBeforeCreation edits what machines are created from after KubeVirt has refused their virtual machines. By then their disks
// and their first configuration exist.
func TestEditBeforeCreation(t *testing.T) {
	t.Parallel()
	started := &startedGuests{}
	s := setUpWith(t, kubevirtsim.Options{Guests: kubevirtGuests{started}})
	userData := func(comment string) *v1alpha1.CloudInit {
		return &v1alpha1.CloudInit{UserData: "#cloud-config\n" + strings.Repeat("# "+comment+"\n", 500)}
	}
	refused := func(name string, change func(*v1alpha1.MachineSpec)) {
		s.Create(machineWith(name, func(m *v1alpha1.MachineSpec) {
			m.Domain = &v1alpha1.MachineDomain{Machine: &v1alpha1.DomainMachine{Type: "pc-i440fx"}}
			change(m)
		}))
		s.awaitMachine(name, "is refused", hypervisortest.HasReason("KubeVirtApiError"))
	}
	refused("config", func(m *v1alpha1.MachineSpec) { m.CloudInit = userData("first") })
	s.Edit("config", func(m *v1alpha1.Machine) { m.Spec.Domain, m.Spec.CloudInit = nil, userData("second") })
	m := s.awaitMachine("config", "runs", hypervisortest.IsRunning)
	if got := started.of(m); got != userData("second").UserData {
		t.Errorf("the guest read %.40q", got)
	}
	for field, change := range map[string]func(*v1alpha1.MachineDisk){
		"storageClass": func(d *v1alpha1.MachineDisk) { d.StorageClass = "fast-ssd" },
		"accessMode":   func(d *v1alpha1.MachineDisk) { d.AccessMode = v1alpha1.DiskAccessMode(corev1.ReadWriteMany) },
		"volumeMode":   func(d *v1alpha1.MachineDisk) { d.VolumeMode = v1alpha1.DiskVolumeMode(corev1.PersistentVolumeBlock) },
	} {
		name := strings.ToLower(field)
		refused(name, func(m *v1alpha1.MachineSpec) {
			m.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "20Gi", StorageClass: "standard", AccessMode: "ReadWriteOnce", VolumeMode: "Filesystem"}}
		})
		m := &v1alpha1.Machine{}
		s.Edit(name, func(edited *v1alpha1.Machine) {
			m = edited.DeepCopy()
			edited.Spec.Domain = nil
			change(&edited.Spec.Disks[0])
		})
		if got := condition(s.awaitMachine(name, "has another disk", hypervisortest.HasReason("InvalidSpec")), "Ready"); !strings.Contains(got, "disk root exists with "+field) {
			t.Errorf("%s: Ready is %s", field, got)
		}
		s.Edit(name, func(edited *v1alpha1.Machine) { edited.Spec.Disks = m.Spec.Disks })
		s.awaitMachine(name, "runs with its disk", hypervisortest.IsRunning)
	}
}

// TestEditImageBeforeCreation edits the image of machines after KubeVirt has refused their virtual machines.
func TestEditImageBeforeCreation(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	const old, other = "https://images.example.com/old.qcow2", "https://images.example.com/other.qcow2"
	for name, tc := range map[string]struct{ before, after, refused string }{
		"removed": {old, "", ""},
		"changed": {old, other, ""},
		"added":   {"", other, "disk root exists without the image: remove spec.os.imageID, or delete the Machine and create it again"},
	} {
		image := func(url string) *v1alpha1.MachineOS {
			if url == "" {
				return nil
			}
			return &v1alpha1.MachineOS{ImageID: url}
		}
		s.Create(machineWith(name, func(m *v1alpha1.MachineSpec) {
			m.Domain, m.OS = &v1alpha1.MachineDomain{Machine: &v1alpha1.DomainMachine{Type: "pc-i440fx"}}, image(tc.before)
		}))
		s.awaitMachine(name, "is refused", hypervisortest.HasReason("KubeVirtApiError"))
		s.Edit(name, func(m *v1alpha1.Machine) { m.Spec.Domain, m.Spec.OS = nil, image(tc.after) })
		want := tc.after
		if tc.refused != "" {
			if got := condition(s.awaitMachine(name, "has an image too late", hypervisortest.HasReason("InvalidSpec")), "Ready"); !strings.Contains(got, tc.refused) {
				t.Errorf("%s: Ready is %s", name, got)
			}
			s.Edit(name, func(m *v1alpha1.Machine) { m.Spec.OS, want = image(tc.before), tc.before })
		}
		s.awaitMachine(name, "runs", hypervisortest.IsRunning)
		vm := &kubevirtv1.VirtualMachine{}
		if err := s.Kube.Get(t.Context(), s.Namespace, name, vm); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, template := range vm.Spec.DataVolumeTemplates {
			got += template.Spec.Source.HTTP.URL
		}
		if got != want {
			t.Errorf("%s: the disk has the image %q, want %q", name, got, want)
		}
	}
}

// TestEditDisksBeforeCreation edits the disks of machines after KubeVirt has refused their virtual machines.
func TestEditDisksBeforeCreation(t *testing.T) {
	t.Parallel()
	s := setUpWith(t, kubevirtsim.Options{StorageClasses: []kubevirtsim.StorageClass{
		{Name: "standard", Default: true, Expandable: true}, {Name: "wait-for-consumer", WaitForFirstConsumer: true},
	}})
	disks := func(root v1alpha1.Size, others ...v1alpha1.MachineDisk) []v1alpha1.MachineDisk {
		return append([]v1alpha1.MachineDisk{{Name: "root", Size: root}}, others...)
	}
	for name, tc := range map[string]struct {
		before, after []v1alpha1.MachineDisk
		ready         string
		root          string
	}{
		"removed": {disks("20Gi", v1alpha1.MachineDisk{Name: "data", Size: "1Gi", StorageClass: "wait-for-consumer"}), disks("20Gi"), "MachineRunning", "20Gi"},
		"larger":  {disks("20Gi"), disks("30Gi"), "MachineRunning", "30Gi"},
		"smaller": {disks("30Gi"), disks("20Gi"), "DiskCannotShrink", "30Gi"},
	} {
		s.Create(machineWith(name, func(m *v1alpha1.MachineSpec) {
			m.Domain, m.Disks = &v1alpha1.MachineDomain{Machine: &v1alpha1.DomainMachine{Type: "pc-i440fx"}}, tc.before
		}))
		s.awaitMachine(name, "is refused", hypervisortest.HasReason("KubeVirtApiError"))
		s.awaitClaim(name+"-root", "is bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
		s.Edit(name, func(m *v1alpha1.Machine) { m.Spec.Domain, m.Spec.Disks = nil, tc.after })
		s.awaitMachine(name, "runs with reason "+tc.ready, func(m *v1alpha1.Machine) bool {
			return m.Status.Phase == v1alpha1.MachineRunning && hypervisortest.HasReason(tc.ready)(m) && meta.IsStatusConditionTrue(m.Status.Conditions, "StorageReady")
		})
		s.awaitClaim(name+"-root", "has "+tc.root, func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Capacity.Storage().String() == tc.root })
		if err := s.Kube.Delete(t.Context(), &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
		s.awaitEmpty() // also of the disk that no virtual machine has had
	}
}

// TestEditDisksDuringCreation makes disks larger before their volumes exist. They grow when they have them, without a resync.
func TestEditDisksDuringCreation(t *testing.T) {
	t.Parallel()
	for name, os := range map[string]*v1alpha1.MachineOS{"blank": nil, "image": {ImageID: "https://images.example.com/linux.qcow2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &faults.Plan{}
			if err := plan.Set(faults.Rule{Operation: "pvc/bind", Error: "the pool is full"}); err != nil {
				t.Fatal(err)
			}
			s := setUpWith(t, kubevirtsim.Options{Plan: plan})
			s.Create(machineWith("vm", func(m *v1alpha1.MachineSpec) { m.OS = os }))
			s.awaitMachine("vm", "waits for its disk", func(m *v1alpha1.Machine) bool {
				return m.Status.VMName != "" && hypervisortest.HasReason("Provisioning")(m)
			})
			s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "30Gi"}} })
			s.awaitMachine("vm", "has its new spec looked at", func(m *v1alpha1.Machine) bool {
				c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
				return c != nil && c.ObservedGeneration == m.Generation
			})
			if err := plan.Set(); err != nil {
				t.Fatal(err)
			}
			s.awaitMachine("vm", "runs with its larger disk", func(m *v1alpha1.Machine) bool {
				claim := &corev1.PersistentVolumeClaim{}
				err := s.Kube.Get(t.Context(), s.Namespace, "vm-root", claim)
				return err == nil && hypervisortest.IsRunning(m) && m.Status.ObservedGeneration == m.Generation && claim.Status.Capacity.Storage().String() == "30Gi"
			})
		})
	}
}

func TestForeignVirtualMachineIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	halted := kubevirtv1.RunStrategyHalted
	foreign := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Spec: kubevirtv1.VirtualMachineSpec{
		RunStrategy: &halted, Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{},
	}}
	s.Create(foreign)
	s.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Spec: v1alpha1.MachineSpec{Template: "small"}})
	m := s.awaitMachine("taken", "reports that its name is taken", hypervisortest.HasReason("VirtualMachineNameTaken"))
	if err := s.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the Machine is deleted", func() (bool, string) {
		err := s.Kube.Get(t.Context(), s.Namespace, "taken", &v1alpha1.Machine{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
	if err := s.Kube.Get(t.Context(), s.Namespace, "taken", foreign); err != nil {
		t.Errorf("a virtual machine of another owner was deleted: %v", err)
	}
}

// TestForeignDiskIsLeftAlone finds a disk of another owner under the name that the machine's disk
// would have.
func TestForeignDiskIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	class := "standard"
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "vm-root"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
	}}
	s.Create(foreign)
	s.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: v1alpha1.MachineSpec{Template: "small"}})
	m := s.awaitMachine("vm", "reports that the name of its disk is taken", hypervisortest.HasReason("NameTaken"))
	if err := s.Kube.Get(t.Context(), s.Namespace, "vm", &kubevirtv1.VirtualMachine{}); !kube.NotFound(err) {
		t.Errorf("a virtual machine uses a disk of another owner: %v", err)
	}
	if err := s.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the Machine is deleted", func() (bool, string) {
		err := s.Kube.Get(t.Context(), s.Namespace, "vm", &v1alpha1.Machine{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
	if gone, err := s.Kube.Gone(t.Context(), foreign, ""); gone || err != nil {
		t.Errorf("a disk of another owner was deleted: %v", err)
	}
}

func TestPower(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: v1alpha1.MachineSpec{Template: "small"}})
	s.awaitMachine("vm", "runs", hypervisortest.HasReason("MachineRunning"))
	change := func(f func(*v1alpha1.Machine)) { s.Edit("vm", f) }
	change(func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerStopped })
	s.awaitMachine("vm", "stops", func(m *v1alpha1.Machine) bool { return m.Status.Phase == v1alpha1.MachineStopped })
	change(func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerRunning })
	s.awaitMachine("vm", "runs again", hypervisortest.HasReason("MachineRunning"))
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "vm", vmi); err != nil {
		t.Fatal(err)
	}
	change(func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
	s.awaitMachine("vm", "restarts", func(m *v1alpha1.Machine) bool {
		now := &kubevirtv1.VirtualMachineInstance{}
		err := s.Kube.Get(t.Context(), s.Namespace, "vm", now)
		return err == nil && now.UID != vmi.UID && m.Status.RestartToken == "once" && hypervisortest.HasReason("MachineRunning")(m)
	})
}

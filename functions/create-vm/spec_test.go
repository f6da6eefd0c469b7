package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
	"github.com/vitistack/stack/functions/internal/kube"
	kubevirtsim "github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func machineWith(name string, change func(*v1alpha1.MachineSpec)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{Template: "small"}}
	change(&m.Spec)
	return m
}

// TestEverythingIsAdmitted sets every field of a Machine. The simulated KubeVirt rejects what the real
// one rejects.
func TestEverythingIsAdmitted(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.allowBridge("br7", "200")
	yes, vlan := true, v1alpha2.VLANID(200) // those of the network
	s.Create(&v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: v1alpha1.NetworkConfigurationSpec{VLAN: &vlan, Bridge: "br7", MTU: 9000}})
	s.Create(machineWith("all", func(m *v1alpha1.MachineSpec) {
		m.Resources = &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 2, Threads: 2, Sockets: 2}}
		m.Disks = []v1alpha1.MachineDisk{{Name: "data", Size: "1Gi", StorageClass: "fast-ssd", AccessMode: "ReadWriteMany", VolumeMode: "Block"}}
		m.Networks = []v1alpha1.MachineNetwork{{Name: "eth0", NetworkName: "prod", Model: "e1000", MACAddress: "52-54-00-AA-BB-CC"}, {Name: "eth1", NetworkName: "prod"}}
		m.BootOrder = []v1alpha1.BootDevice{"cdrom", "disk", "network"}
		m.OS = &v1alpha1.MachineOS{ISOURI: "https://images.example/installer.iso"}
		m.CloudInit = &v1alpha1.CloudInit{UserData: "#cloud-config\n"}
		m.Domain = &v1alpha1.MachineDomain{
			Machine:  &v1alpha1.DomainMachine{Type: "pc-q35"},
			Features: &v1alpha1.DomainFeatures{ACPI: &yes, APIC: &yes, HyperV: &yes},
			Firmware: &v1alpha1.DomainFirmware{Bootloader: v1alpha1.Bootloader{EFI: true, SecureBoot: true}},
		}
	}))
	m := s.awaitMachine("all", "runs", hypervisortest.IsRunning)
	vm := &kubevirtv1.VirtualMachine{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "all", vm); err != nil {
		t.Fatal(err)
	}
	domain := vm.Spec.Template.Spec.Domain
	if d := domain; d.Machine.Type != "q35" || d.Features.SMM == nil || !*d.Firmware.Bootloader.EFI.SecureBoot || d.Features.Hyperv == nil || !*d.Devices.NetworkInterfaceMultiQueue {
		t.Errorf("domain %+v", d)
	}
	boot := map[string]uint{}
	for _, d := range domain.Devices.Disks {
		if d.BootOrder != nil {
			boot[d.Name] = *d.BootOrder
		}
	}
	for _, i := range domain.Devices.Interfaces {
		boot[i.Name] = *i.BootOrder
	}
	if diff := cmp.Diff(map[string]uint{"cdrom": 1, "root": 2, "data": 3, "eth0": 4, "eth1": 5}, boot); diff != "" {
		t.Errorf("boot order (-want +got):\n%s", diff)
	}
	if i := domain.Devices.Interfaces[0]; i.MacAddress != "52:54:00:aa:bb:cc" || i.Model != "e1000" {
		t.Errorf("first interface %+v", i)
	}
	definition := &kubevirt.NetworkAttachmentDefinition{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "net-br7-vlan200-mtu9000", definition); err != nil {
		t.Fatal(err)
	}
	var config struct{ Plugins []map[string]any }
	if err := json.Unmarshal([]byte(definition.Spec.Config), &config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"type": "bridge", "bridge": "br7", "vlan": 200., "mtu": 9000., "ipam": map[string]any{}, "macspoofchk": true}, config.Plugins[0]); diff != "" {
		t.Errorf("attachment (-want +got):\n%s", diff)
	}
	if owner := definition.OwnerReferences; len(owner) != 1 || owner[0].Kind != "NetworkNamespace" {
		t.Errorf("an attachment is owned by its network: owners %v", owner)
	}
	if err := s.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	s.awaitEmpty()
	nc := &v1alpha1.NetworkConfiguration{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "prod", nc); err != nil || len(nc.Spec.NetworkInterfaces) != 0 {
		t.Errorf("the machine has left its network: %v, %v", nc.Spec.NetworkInterfaces, err)
	}
}

// TestRefusalsAreQuoted requests a machine type that KubeVirt does not allow by default.
func TestRefusalsAreQuoted(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(machineWith("old", func(m *v1alpha1.MachineSpec) {
		m.Domain = &v1alpha1.MachineDomain{Machine: &v1alpha1.DomainMachine{Type: "pc-i440fx"}}
	}))
	m := s.awaitMachine("old", "is refused", hypervisortest.HasReason("KubeVirtApiError"))
	if got := condition(m, "VirtualMachineReady"); !strings.HasPrefix(got, "False VMFailed") || !strings.Contains(got, "pc-i440fx") {
		t.Errorf("got %s", got)
	}
	s.Edit("old", func(m *v1alpha1.Machine) { m.Spec.Domain = nil })
	s.awaitMachine("old", "runs once the error is fixed", hypervisortest.IsRunning)
}

// TestSecretsForGuests has a user who may create Machines name Secrets in order to read them in the
// guest.
func TestSecretsForGuests(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		secret metav1.ObjectMeta
		says   string // empty if the guest gets it
	}{
		{"a Secret without the label", metav1.ObjectMeta{Name: "db"}, "kubectl label secret db"},
		{"a Secret that is labelled as not for machines", metav1.ObjectMeta{Name: "db", Labels: map[string]string{v1alpha1.LabelCloudInit: "false"}}, "kubectl label secret db"},
		{"the keys of a cluster", metav1.ObjectMeta{Name: "shop-talos-secrets", OwnerReferences: []metav1.OwnerReference{{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Name: "shop"}}}, "the stack's own"},
		{"the cloud-init data of another machine, whatever its labels", metav1.ObjectMeta{Name: "web-cloudinit", Labels: map[string]string{v1alpha1.LabelManagedBy: "kubevirt-operator", v1alpha1.LabelCloudInit: "true"}}, "the stack's own"},
		{"a Secret that is labelled for machines", metav1.ObjectMeta{Name: "first-boot", Labels: map[string]string{v1alpha1.LabelCloudInit: "true"}}, ""},
	} {
		err := checkGuestSecret(&corev1.Secret{ObjectMeta: tc.secret})
		if f, _ := asUserError(err); (tc.says == "") != (err == nil) || (err != nil && (f.Reason != "CloudInitSecretNotAllowed" || !strings.Contains(f.Message, tc.says))) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.says)
		}
	}
}

// TestFirstConfiguration checks what a guest reads at its first boot: static addresses by default, or
// the requester's own network configuration. In that case the addresses may differ from those of layer
// 2.
func TestFirstConfiguration(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	const secret = "correct-horse-battery-staple"
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Data: map[string][]byte{"userdata": []byte("#cloud-config\npassword: " + secret + "\n")}}
	s.Create(mine)
	s.Create(machineWith("static", func(m *v1alpha1.MachineSpec) {
		m.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.CloudInitSecretReference{Name: "mine", Key: "userdata"}}
	}))
	s.Create(machineWith("own", func(m *v1alpha1.MachineSpec) {
		m.CloudInit = &v1alpha1.CloudInit{NetworkData: "version: 2\nethernets:\n  eth0:\n    addresses: [10.9.9.9/24]\n"}
	}))
	refused := s.awaitMachine("static", "reports that the Secret is not for machines", hypervisortest.HasReason("CloudInitSecretNotAllowed"))
	if message := condition(refused, "Ready"); !strings.Contains(message, "kubectl label secret mine --namespace "+s.Namespace+" vitistack.io/cloud-init=true") {
		t.Errorf("Ready is %q, which does not name the remedy", message)
	}
	for obj, metadata := range map[kube.Object]map[string]any{mine: {"labels": map[string]any{"vitistack.io/cloud-init": "true"}}, refused: {"annotations": map[string]any{"vitistack.io/reconcile": "1"}}} {
		if err := s.Kube.Merge(t.Context(), obj, map[string]any{"metadata": metadata}); err != nil {
			t.Fatal(err)
		}
	}
	m := s.awaitMachine("static", "runs with its address", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && meta.IsStatusConditionTrue(m.Status.Conditions, "NetworkReady")
	})
	own := &corev1.Secret{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "static-cloudinit", own); err != nil {
		t.Fatal(err)
	}
	var network struct {
		Version   int
		Ethernets map[string]struct {
			Match     map[string]string
			Addresses []string
		}
	}
	if err := yaml.Unmarshal(own.Data["networkdata"], &network); err != nil {
		t.Fatal(err)
	}
	if e := network.Ethernets["eth0"]; network.Version != 2 || e.Match["macaddress"] != deriveMAC(m.UID, "eth0") || len(e.Addresses) != 1 || e.Addresses[0] != m.Status.IPAddresses[0]+"/24" {
		t.Errorf("network data %s", own.Data["networkdata"])
	}
	s.requireNoText(secret)
	s.awaitMachine("own", "has other addresses than those allocated", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && strings.HasPrefix(condition(m, "NetworkReady"), "False AddressMismatch: the guest does not have "+m.Status.IPAddresses[0]+", but 10.9.9.9")
	})
}

// requireNoText fails if any status or Event contains a text.
func (e *env) requireNoText(text string) {
	e.Helper()
	for _, list := range []kube.ObjectList{&v1alpha1.MachineList{}, &kubevirtv1.VirtualMachineList{}, &v1alpha1.NetworkConfigurationList{}, &corev1.EventList{}} {
		if err := e.Kube.List(e.Context(), e.Namespace, "", list); err != nil {
			e.Fatal(err)
		}
		doc, err := json.Marshal(list)
		if err != nil {
			e.Fatal(err)
		}
		if strings.Contains(string(doc), text) {
			e.Errorf("a secret is in %T", list)
		}
	}
}

// TestWrongNetworkCanBeChanged names a network that does not exist, and then another.
func TestWrongNetworkCanBeChanged(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(&v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "right"}})
	s.Create(machineWith("vm", func(m *v1alpha1.MachineSpec) {
		m.Networks = []v1alpha1.MachineNetwork{{Name: "eth0", NetworkName: "right"}, {Name: "eth1", NetworkName: "wrong"}}
	}))
	s.awaitMachine("vm", "lacks a network", hypervisortest.HasReason("NetworkConfigurationNotFound"))
	nc := &v1alpha1.NetworkConfiguration{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "right", nc); err != nil || len(nc.Spec.NetworkInterfaces) > 0 {
		t.Errorf("no interface is claimed before every network exists: %v, %v", nc.Spec.NetworkInterfaces, err)
	}
	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.Networks = m.Spec.Networks[:1] })
	m := s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
	before := m.DeepCopy()
	m.Spec.Networks = append(m.Spec.Networks, v1alpha1.MachineNetwork{Name: "eth1", NetworkName: "right"})
	if _, err := s.Kube.Patch(t.Context(), before, m); err == nil || !strings.Contains(err.Error(), "networks cannot be changed any more") {
		t.Errorf("a machine that has its virtual machine keeps its interfaces: %v", err)
	}
}

// TestRemedies follows the message of each error literally, and expects a running machine.
func TestRemedies(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	for name, tc := range map[string]struct {
		reason string
		wrong  func(*v1alpha1.MachineSpec)
		says   string
		fix    func(*v1alpha1.MachineSpec)
	}{
		"huge": {
			"ask for less memory: the instance that waits for a host keeps its size",
			tooLarge, "InsufficientResources", func(m *v1alpha1.MachineSpec) { m.Resources.Memory.Size = "2Gi" },
		},
		"nowhere": {
			"write another host",
			func(m *v1alpha1.MachineSpec) { m.NodeName = "nowhere" }, "NodeNotFound", func(m *v1alpha1.MachineSpec) { m.NodeName = "hypervisor-1" },
		},
		"named-image": {
			"write a URL",
			func(m *v1alpha1.MachineSpec) { m.OS = &v1alpha1.MachineOS{ImageID: "ubuntu-24.04"} }, "ImageNotSupported",
			func(m *v1alpha1.MachineSpec) { m.OS.ImageID = "https://images.example.com/ubuntu-24.04.qcow2" },
		},
	} {
		t.Run(name, func(*testing.T) {
			s.Create(machineWith(name, tc.wrong))
			s.awaitMachine(name, "reports the error", hypervisortest.HasReason(tc.says))
			s.Edit(name, func(m *v1alpha1.Machine) { tc.fix(&m.Spec) })
			s.awaitMachine(name, tc.reason, hypervisortest.IsRunning)
		})
	}
}

// tooLarge requests more memory than any host has.
func tooLarge(m *v1alpha1.MachineSpec) {
	m.Resources = &v1alpha1.MachineResources{Memory: &v1alpha1.MachineMemory{Size: "16Ti"}}
}

// TestRestartOfWhatWaits requests a restart of a machine that waits for a host.
func TestRestartOfWhatWaits(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(machineWith("waits", tooLarge))
	s.awaitMachine("waits", "has no host", hypervisortest.HasReason("InsufficientResources"))
	instance := func() types.UID {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if err := s.Kube.Get(t.Context(), s.Namespace, "waits", vmi); err != nil {
			return ""
		}
		return vmi.UID
	}
	first := instance()
	s.Edit("waits", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
	s.awaitMachine("waits", "has another instance", func(m *v1alpha1.Machine) bool {
		now := instance()
		return m.Status.RestartToken == "once" && now != "" && now != first
	})
}

// TestUnpluggedDisk adds a disk to a running machine where KubeVirt cannot plug it in, and follows the
// condition.
func TestUnpluggedDisk(t *testing.T) {
	t.Parallel()
	s := setUpWith(t, kubevirtsim.Options{NoVolumeHotplug: true})
	s.Create(machineWith("vm", func(*v1alpha1.MachineSpec) {}))
	s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "data", Size: "1Gi"}} })
	s.awaitMachine("vm", "waiting for its disk", func(m *v1alpha1.Machine) bool {
		says := condition(m, v1alpha1.ConditionStorageReady)
		return strings.HasPrefix(says, "False PVCPending: waiting for KubeVirt to plug in disk data") && strings.Contains(says, "DeclarativeHotplugVolumes")
	})
	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "plug" })
	s.awaitMachine("vm", "has its disk after the restart", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && m.Status.RestartToken == "plug" && strings.HasPrefix(condition(m, v1alpha1.ConditionStorageReady), "True")
	})
}

func TestDecideAction(t *testing.T) {
	t.Parallel()
	made := func(change func(*v1alpha1.Machine)) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", Generation: 1}, Status: v1alpha1.MachineStatus{
			Phase: v1alpha1.MachineRunning, ObservedGeneration: 1, VMName: "m", ProviderID: hypervisor.LocalID("n", "m"),
			Conditions: []metav1.Condition{{Type: "StorageReady", Status: metav1.ConditionTrue}},
		}}
		change(m)
		return m
	}
	reconciled := made(func(*v1alpha1.Machine) {})
	refusing := made(func(m *v1alpha1.Machine) {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "DiskCannotShrink"})
	})
	installed := func(change func(*v1alpha1.Machine)) *v1alpha1.Machine {
		return made(func(m *v1alpha1.Machine) {
			node := hypervisortest.NewNode("m")
			m.Labels, m.Spec, m.Annotations = node.Labels, node.Spec, map[string]string{v1alpha1.AnnotationInstalled: "true"}
			change(m)
		})
	}
	cases := map[string]struct {
		reason string
		m      *v1alpha1.Machine
		cause  string
		want   string
	}{
		"Installed":          {"only the configuration has to go", installed(func(*v1alpha1.Machine) {}), causeMachine, actionRemoveConfig},
		"InstalledAndSpec":   {"its spec has changed as well", installed(func(m *v1alpha1.Machine) { m.Generation = 2 }), causeMachine, actionEnsure},
		"InstalledElsewhere": {"another hypervisor removes it in its own way", installed(func(m *v1alpha1.Machine) { m.Status.ProviderID = "proxmox://pve1/10000" }), causeMachine, actionEnsure},
		"Resync":             {"an event may have been lost", reconciled, causeResync, actionEnsure},
		"New":                {"it has not been reconciled yet", &v1alpha1.Machine{}, causeMachine, actionEnsure},
		"Own":                {"the function's own status write causes no work", reconciled, causeMachine, actionNone},
		"Spec":               {"its spec has changed", made(func(m *v1alpha1.Machine) { m.Generation = 2 }), causeMachine, actionEnsure},
		"Requested":          {"the annotation requests a reconcile", made(func(m *v1alpha1.Machine) { m.Annotations = map[string]string{v1alpha1.AnnotationReconcile: "1"} }), causeMachine, actionEnsure},
		"Task":               {"no event reports the end of a task", made(func(m *v1alpha1.Machine) { m.Status.Task = &v1alpha1.ProviderTask{} }), causeMachine, actionEnsure},
		"Address":            {"it waits for its address", &v1alpha1.Machine{}, causeNetwork, actionEnsure},
		"Network":            {"it waits for its NetworkConfiguration", &v1alpha1.Machine{}, causeNamespace, actionEnsure},
		"Late":               {"its status has the addresses", reconciled, causeNetwork, actionNone},
		"VM":                 {"the state of the virtual machine belongs into the status", reconciled, causeVM, actionObserve},
		"Lost":               {"its status was never written", &v1alpha1.Machine{}, causeVM, actionEnsure},
		"Elsewhere":          {"the virtual machine belongs to another machine of that name", made(func(m *v1alpha1.Machine) { m.Status.ProviderID = "proxmox://pve1/10000" }), causeVM, actionNone},
		"Instance":           {"the guest reports its addresses", reconciled, causeInstance, actionObserve},
		"NewSpec":            {"an old status must not hide a new spec", made(func(m *v1alpha1.Machine) { m.Generation = 2 }), causeInstance, actionEnsure},
		"NewSpecVM":          {"an event of the virtual machine does not hide a new spec either", made(func(m *v1alpha1.Machine) { m.Generation = 2 }), causeVM, actionEnsure},
		"Restart":            {"a restart is requested", made(func(m *v1alpha1.Machine) { m.Spec.RestartToken = "1" }), causeInstance, actionEnsure},
		"Refused":            {"the state of the instance does not show that a disk cannot shrink", refusing, causeInstance, actionEnsure},
		"RefusedVM":          {"the state of the virtual machine does not show it either", refusing, causeVM, actionEnsure},
		"RefusedStopped": {"nor if the machine is off", made(func(m *v1alpha1.Machine) {
			m.Status.Phase, m.Status.Conditions = v1alpha1.MachineStopped, refusing.Status.Conditions
		}), causeVM, actionEnsure},
		"RefusedStarting": {"nor while the machine starts", made(func(m *v1alpha1.Machine) {
			m.Status.Phase, m.Status.Conditions = v1alpha1.MachineCreating, refusing.Status.Conditions
		}), causeVM, actionEnsure},
		"Waits": {"a machine that starts changes often", made(func(m *v1alpha1.Machine) {
			m.Status.Phase = v1alpha1.MachineCreating
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Starting"})
		}), causeVM, actionObserve},
		"Template": {"a stopped machine has another size than its spec says", made(func(m *v1alpha1.Machine) {
			m.Status.Phase, m.Spec.Template, m.Status.Template = v1alpha1.MachineStopped, "huge", &v1alpha1.MachineTemplate{Name: "small"}
		}), causeVM, actionEnsure},
		"Starting":    {"another event of the virtual machine follows", made(func(m *v1alpha1.Machine) { m.Status.Phase = v1alpha1.MachineCreating }), causeInstance, actionNone},
		"Disk":        {"the disk exists already", reconciled, causeClaim, actionNone},
		"Bound":       {"it waits for the disk", made(func(m *v1alpha1.Machine) { m.Status.Conditions = nil }), causeClaim, actionObserve},
		"DiskAndSpec": {"its spec has changed as well", made(func(m *v1alpha1.Machine) { m.Generation, m.Status.Conditions = 2, nil }), causeClaim, actionEnsure},
		"StartingVM":  {"an event of the virtual machine reports the progress", made(func(m *v1alpha1.Machine) { m.Status.Phase, m.Status.Conditions = v1alpha1.MachineCreating, nil }), causeClaim, actionNone},
		"NoVM":        {"the virtual machine is created after the disk", &v1alpha1.Machine{}, causeClaim, actionNone},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decideAction(tc.m, tc.cause); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// TestNetworkCanBeChosen changes the network of machines at different stages. A machine that has joined no network may choose another, whatever blocks
// it.
func TestNetworkCanBeChosen(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	server.Install(t, "machines")
	namespace := server.Namespace(t)
	client, err := kube.New(server.Config(), "test", kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	condition := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Now()}
	}
	for name, tc := range map[string]struct {
		reason     string
		vm         string
		conditions []metav1.Condition
		refused    bool
	}{
		"missing":     {"the network does not exist", "", []metav1.Condition{condition("Ready", "NetworkNamespaceNotFound"), condition("NetworkReady", "NetworkFailed")}, false},
		"unavailable": {"the backend is unavailable", "", []metav1.Condition{condition("Ready", "ProviderUnavailable"), condition("NetworkReady", "NetworkFailed")}, false},
		"first":       {"the backend has never answered", "", []metav1.Condition{condition("Ready", "ProviderUnavailable")}, false},
		"waiting":     {"it is in the network, which has no address yet", "", []metav1.Condition{condition("Ready", "WaitingForAddress"), condition("NetworkReady", "WaitingForAddress")}, true},
		"addressed":   {"it has an address of the network", "", []metav1.Condition{condition("Ready", "ProviderUnavailable"), condition("NetworkReady", "NetworkConfigured")}, true},
		"made":        {"it runs in the network", "made", []metav1.Condition{condition("Ready", "NetworkNamespaceNotFound"), condition("NetworkReady", "NetworkFailed")}, true},
	} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.MachineSpec{Template: "small", NetworkNamespaceName: "one"}}
		if err := client.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		before := m.DeepCopy()
		m.Status.Provider, m.Status.VMName, m.Status.Conditions = "kubevirt", tc.vm, tc.conditions
		if _, err := client.PatchStatus(t.Context(), before, m); err != nil {
			t.Fatal(err)
		}
		before = m.DeepCopy()
		m.Spec.NetworkNamespaceName = "other"
		if _, err := client.Patch(t.Context(), before, m); (err != nil) != tc.refused || (err != nil && !strings.Contains(err.Error(), "networkNamespaceName cannot be changed any more")) {
			t.Errorf("%s: %s: %v, want a refusal: %t", name, tc.reason, err, tc.refused)
		}
	}
}

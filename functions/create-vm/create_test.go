package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
	"github.com/vitistack/stack/functions/internal/kube"
	kubevirtsim "github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// stand is a cluster with KubeVirt, in which the function runs and layer 2 is
// played by the test.
type stand struct {
	*testing.T
	namespace string
	kube      *kube.Client
	function  *function
}

func setUp(t *testing.T) *stand {
	t.Helper()
	return setUpWith(t, kubevirtsim.Options{})
}

func setUpWith(t *testing.T, options kubevirtsim.Options) *stand {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t)
	s := &stand{T: t, namespace: server.Namespace(t)}
	options.Namespace = s.namespace
	simulate(t, server.Config(), options)
	var err error
	if s.kube, err = kube.New(server.Config(), "test", testKinds...); err != nil {
		t.Fatal(err)
	}
	s.function = &function{kube: s.kube, connect: testConnector(s.kube, s.namespace, nil), local: kubevirt.Local(s.kube), now: time.Now}
	s.create(&v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	s.defaultProvider()
	feed.Run(t, server.Config(), s.namespace, s.function.handle,
		feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("machines"), Name: "Machine"},
		feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"},
		feed.Kind{Resource: kubevirtv1.GroupVersion.WithResource("virtualmachines"), Name: "VirtualMachine"},
		feed.Kind{Resource: kubevirtv1.GroupVersion.WithResource("virtualmachineinstances"), Name: "VirtualMachineInstance"},
		feed.Kind{Resource: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), Name: "PersistentVolumeClaim"},
	)
	feed.Run(t, server.Config(), s.namespace, s.layer2(), feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"})
	return s
}

const unserved = "unserved"

// layer2 gives every interface with a MAC address the next address, but where the
// description is unserved.
func (s *stand) layer2() events.Handler {
	var next atomic.Int32
	next.Store(9)
	return func(ctx context.Context, in event.Event) (*event.Event, error) {
		ref, err := events.RefOf(in)
		if err != nil {
			return nil, err
		}
		return nil, kube.OnConflict(func() error {
			nc := &v1alpha1.NetworkConfiguration{}
			if err := s.kube.Get(ctx, ref.Namespace, ref.Name, nc); err != nil || nc.DeletionTimestamp != nil || nc.Spec.Description == unserved {
				return nil
			}
			before := nc.DeepCopy()
			nc.Status.Phase, nc.Status.NetworkNamespaceName = v1alpha1.NetworkConfigurationReady, "net"
			nc.Status.ObservedGeneration = nc.Generation
			nc.Status.NetworkInterfaces = slices.DeleteFunc(nc.Status.NetworkInterfaces, func(st v1alpha1.InterfaceStatus) bool {
				return macIn(nc, st.Name) != st.MACAddress.Normalized()
			})
			for _, i := range nc.Spec.NetworkInterfaces {
				has := slices.ContainsFunc(nc.Status.NetworkInterfaces, func(st v1alpha1.InterfaceStatus) bool { return st.Name == i.Name })
				if i.MACAddress == "" || has {
					continue
				}
				nc.Status.NetworkInterfaces = append(nc.Status.NetworkInterfaces, v1alpha1.InterfaceStatus{
					Name: i.Name, MACAddress: i.MACAddress, IPAllocated: true, AllocationMethod: v1alpha2.AllocationStatic, VLAN: "200",
					IPv4Addresses: []string{fmt.Sprintf("192.168.10.%d", next.Add(1))}, IPv4Subnet: "192.168.10.0/24", IPv4Gateway: "192.168.10.1",
				})
			}
			_, err := s.kube.PatchStatus(ctx, before, nc)
			return err
		})
	}
}

func (s *stand) create(obj kube.Object) {
	s.Helper()
	obj.SetNamespace(s.namespace)
	if err := s.kube.Create(s.Context(), obj); err != nil {
		s.Fatal(err)
	}
}

// example applies the first object of a manifest that users start from.
func (s *stand) example(file string, into kube.Object) {
	s.Helper()
	doc, err := apis.Examples.ReadFile("examples/" + file)
	if err != nil {
		s.Fatal(err)
	}
	first, _, _ := strings.Cut(string(doc), "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(first), into); err != nil {
		s.Fatal(err)
	}
	s.create(into)
}

// until waits until a Machine is as done wants it.
func (s *stand) until(name, what string, done func(*v1alpha1.Machine) bool) *v1alpha1.Machine {
	s.Helper()
	m := &v1alpha1.Machine{}
	feed.Until(s.T, name+" "+what, func() (bool, string) {
		m = &v1alpha1.Machine{}
		if err := s.kube.Get(s.Context(), s.namespace, name, m); err != nil {
			return false, err.Error()
		}
		state, _ := yaml.Marshal(m.Status)
		return done(m), string(state)
	})
	return m
}

func ready(reason string) func(*v1alpha1.Machine) bool {
	return func(m *v1alpha1.Machine) bool {
		return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Ready" && c.Reason == reason })
	}
}

func TestExamplesRun(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	for _, name := range []string{"prod-network", "storage-network"} {
		s.create(&v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	cases := map[string]struct {
		reason     string
		cores      uint32
		memory     string
		disks      map[string]string
		interfaces int
	}{
		"basic-vm":      {reason: "medium is 2 cores, 4Gi, 40Gi", cores: 2, memory: "4Gi", disks: map[string]string{"basic-vm-root": "40Gi"}, interfaces: 1},
		"custom-vm":     {reason: "overrides stand over the template, disks are added", cores: 4, memory: "8Gi", disks: map[string]string{"custom-vm-root": "20Gi", "custom-vm-data": "100Gi"}, interfaces: 1},
		"networked-vm":  {reason: "each network is an interface", cores: 2, memory: "4Gi", disks: map[string]string{"networked-vm-root": "40Gi"}, interfaces: 2},
		"cloud-init-vm": {reason: "large is 4 cores, 8Gi, 80Gi", cores: 4, memory: "8Gi", disks: map[string]string{"cloud-init-vm-root": "80Gi"}, interfaces: 1},
	}
	for name := range cases {
		s.example(name+".yaml", &v1alpha1.Machine{})
	}
	for name, tc := range cases {
		m := s.until(name, "runs, and says so of all its parts", func(m *v1alpha1.Machine) bool {
			all := ready("MachineRunning")(m)
			for _, c := range []string{"VirtualMachineReady", "StorageReady", "NetworkReady"} {
				all = all && meta.IsStatusConditionTrue(m.Status.Conditions, c)
			}
			return all
		})
		vm := &kubevirtv1.VirtualMachine{}
		if err := s.kube.Get(t.Context(), s.namespace, name, vm); err != nil {
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
		if err := s.kube.List(t.Context(), s.namespace, "vitistack.io/machine="+name, claims); err != nil {
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
		if err := s.kube.Delete(t.Context(), &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	s.empty()
}

// empty waits until nothing is left of any machine.
func (s *stand) empty() {
	s.Helper()
	feed.Until(s.T, "everything is gone", func() (bool, string) {
		machines, vms, claims := &v1alpha1.MachineList{}, &kubevirtv1.VirtualMachineList{}, &corev1.PersistentVolumeClaimList{}
		for _, list := range []kube.ObjectList{machines, vms, claims} {
			if err := s.kube.List(s.Context(), s.namespace, "", list); err != nil {
				return false, err.Error()
			}
		}
		state := fmt.Sprintf("%d machines, %d virtual machines, %d claims", len(machines.Items), len(vms.Items), len(claims.Items))
		for _, m := range machines.Items {
			state += fmt.Sprintf("; %s: %+v", m.Name, m.Status.Conditions)
		}
		return len(machines.Items)+len(vms.Items)+len(claims.Items) == 0, state
	})
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
		mend    func(*v1alpha1.Machine)
	}{
		"template": {machine("template", func(m *v1alpha1.Machine) { m.Spec.Template = "huge" }), "TemplateNotFound", "write small, medium or large", "", func(m *v1alpha1.Machine) { m.Spec.Template = "large" }},
		"class": {machine("class", func(m *v1alpha1.Machine) {
			m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "data", Size: "1Gi", StorageClass: "slow"}}
		}), "StorageClassNotFound", "name one of fast-ssd, standard", "StorageReady False PVCPending", func(m *v1alpha1.Machine) { m.Spec.Disks[0].StorageClass = "standard" }},
		"secret": {machine("secret", func(m *v1alpha1.Machine) {
			m.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.CloudInitSecretReference{Name: "missing", Key: "userdata"}}
		}), "CloudInitSecretNotFound", "Secret missing does not exist", "NetworkReady True NetworkConfigured", func(m *v1alpha1.Machine) { m.Spec.CloudInit = nil }},
		"network": {machine("network", func(m *v1alpha1.Machine) {
			m.Spec.Networks = []v1alpha1.MachineNetwork{{Name: "eth0", NetworkName: "late"}}
		}), "NetworkConfigurationNotFound", "NetworkConfiguration late does not exist: create it", "NetworkReady False NetworkFailed", nil},
		"namespace": {machine("namespace", func(m *v1alpha1.Machine) { m.Spec.NetworkNamespaceName = "elsewhere" }), "NetworkNamespaceNotFound", "elsewhere", "NetworkReady False NetworkFailed",
			func(m *v1alpha1.Machine) { m.Spec.NetworkNamespaceName = "" }},
	}
	for _, tc := range cases {
		s.create(tc.machine)
	}
	for name, tc := range cases {
		m := s.until(name, "says what to change", ready(tc.reason))
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
		if tc.mend == nil {
			s.create(&v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "late"}})
			continue
		}
		before := m.DeepCopy()
		tc.mend(m)
		if _, err := s.kube.Patch(t.Context(), before, m); err != nil {
			t.Fatal(err)
		}
	}
	for name := range cases {
		s.until(name, "runs once it is mended", ready("MachineRunning"))
	}
}

func TestForeignVirtualMachineIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	halted := kubevirtv1.RunStrategyHalted
	foreign := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Spec: kubevirtv1.VirtualMachineSpec{
		RunStrategy: &halted, Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{},
	}}
	s.create(foreign)
	s.create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "taken"}, Spec: v1alpha1.MachineSpec{Template: "small"}})
	m := s.until("taken", "says that its name is taken", ready("VirtualMachineNameTaken"))
	if err := s.kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the machine is gone", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, "taken", &v1alpha1.Machine{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
	if err := s.kube.Get(t.Context(), s.namespace, "taken", foreign); err != nil {
		t.Errorf("a virtual machine of somebody else was deleted: %v", err)
	}
}

// TestForeignDiskIsLeftAlone has somebody's data under the name that the disk of a
// machine would have.
func TestForeignDiskIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	class := "standard"
	foreign := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "vm-root"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
	}}
	s.create(foreign)
	s.create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: v1alpha1.MachineSpec{Template: "small"}})
	m := s.until("vm", "says that the name of its disk is taken", ready("NameTaken"))
	if err := s.kube.Get(t.Context(), s.namespace, "vm", &kubevirtv1.VirtualMachine{}); !kube.NotFound(err) {
		t.Errorf("there is a virtual machine on a disk of somebody else: %v", err)
	}
	if err := s.kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the machine is gone", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, "vm", &v1alpha1.Machine{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
	if gone, err := s.kube.Gone(t.Context(), foreign); gone || err != nil {
		t.Errorf("a disk of somebody else was deleted: %v", err)
	}
}

func TestPower(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: v1alpha1.MachineSpec{Template: "small"}})
	m := s.until("vm", "runs", ready("MachineRunning"))
	change := func(f func(*v1alpha1.Machine)) {
		before := m.DeepCopy()
		f(m)
		if _, err := s.kube.Patch(t.Context(), before, m); err != nil {
			t.Fatal(err)
		}
	}
	change(func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerStopped })
	m = s.until("vm", "stops", func(m *v1alpha1.Machine) bool { return m.Status.Phase == v1alpha1.MachineStopped })
	change(func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerRunning })
	m = s.until("vm", "runs again", ready("MachineRunning"))
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := s.kube.Get(t.Context(), s.namespace, "vm", vmi); err != nil {
		t.Fatal(err)
	}
	change(func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
	s.until("vm", "restarts", func(m *v1alpha1.Machine) bool {
		now := &kubevirtv1.VirtualMachineInstance{}
		err := s.kube.Get(t.Context(), s.namespace, "vm", now)
		return err == nil && now.UID != vmi.UID && m.Status.RestartToken == "once" && ready("MachineRunning")(m)
	})
}

package main

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"
	virtclient "kubevirt.io/client-go/kubevirt/typed/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	kubevirtsim "github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/judge"
)

// testKinds are the kinds that tests read in addition to those of the function.
var testKinds = append(kinds(), kube.Kinds(kubevirtv1.GroupVersion, &kubevirtv1.VirtualMachineList{}, &kubevirtv1.VirtualMachineInstanceList{}), kube.Kinds(corev1.SchemeGroupVersion, &corev1.SecretList{}, &corev1.EventList{}, &corev1.ResourceQuota{}))

// simulate runs the simulator of KubeVirt in a cluster, for one namespace.
func simulate(t *testing.T, config *rest.Config, options kubevirtsim.Options) {
	t.Helper()
	ready := make(chan struct{})
	options.Ready = func() { close(ready) }
	options.Judge = judge.Start(t)
	sim := kubevirtsim.New(config, options)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- sim.Run(ctx) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatalf("KubeVirt's simulator ended before it was ready: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("KubeVirt's simulator: %v", err)
		}
	})
}

// kubevirtSite returns the site of KubeVirt in the cluster of the Machines.
func kubevirtSite(r *env) *hypervisortest.Site {
	started := &startedGuests{}
	simulate(r.T, r.Config, kubevirtsim.Options{Namespace: r.Namespace, Guests: kubevirtGuests{started}})
	r.defaultProvider()
	s := kubevirtCluster(r, r.Config, "kubevirt")
	s.FoundUserData = started.of
	s.HoldsUserData = func(m *v1alpha1.Machine) bool {
		secret := &corev1.Secret{}
		if err := r.Kube.Get(r.Context(), r.Namespace, m.Name+"-cloudinit", secret); err != nil {
			return false
		}
		return string(secret.Data["userdata"]) != hypervisor.EmptyUserData
	}
	return s
}

// startedGuests records the user data that each guest read at its last start, by its name.
type startedGuests struct{ sync.Map }

func (s *startedGuests) of(m *v1alpha1.Machine) string {
	data, _ := s.Load(m.Name)
	text, _ := data.(string)
	return text
}

func (*startedGuests) PowerOff(string) error { return nil }
func (*startedGuests) Destroy(string) error  { return nil }

type kubevirtGuests struct{ *startedGuests }

func (s kubevirtGuests) PowerOn(g kubevirtsim.Guest) error {
	s.Store(g.Name, g.UserData)
	return nil
}

// defaultProvider creates the MachineProvider of this cluster, which all tests share.
func (e *env) defaultProvider() {
	e.Helper()
	provider := &v1alpha1.MachineProvider{
		ObjectMeta: metav1.ObjectMeta{Name: "kubevirt"}, Spec: v1alpha1.MachineProviderSpec{Type: v1alpha1.ProviderKubeVirt, Default: true},
	}
	if err := e.Kube.Create(e.Context(), provider); err != nil && !kube.AlreadyExists(err) {
		e.Fatal(err)
	}
}

// startsSeen returns a function that counts the instances of a virtual machine.
func startsSeen(r *env, config *rest.Config) func(*v1alpha1.Machine) int {
	var mu sync.Mutex
	seen := map[string]map[any]bool{}
	feed.Run(r.T, config, r.Namespace, func(_ context.Context, in event.Event) (*event.Event, error) {
		ref, err := events.RefOf(in)
		mu.Lock()
		defer mu.Unlock()
		if seen[ref.Name] == nil {
			seen[ref.Name] = map[any]bool{}
		}
		seen[ref.Name][in.Extensions()["partitionkey"]] = true
		return nil, err
	}, feed.Kind{Resource: kubevirtv1.GroupVersion.WithResource("virtualmachineinstances"), Name: "VirtualMachineInstance"})
	return func(m *v1alpha1.Machine) int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen[m.Name])
	}
}

// kubevirtCluster returns a site in the cluster of config. It reads KubeVirt through KubeVirt's own
// client, independent of the client under test.
func kubevirtCluster(r *env, config *rest.Config, provider string) *hypervisortest.Site {
	guests, err := kube.New(config, "test", testKinds...)
	if err != nil {
		r.Fatal(err)
	}
	virt, err := virtclient.NewForConfig(config)
	if err != nil {
		r.Fatal(err)
	}
	vms := virt.VirtualMachines(r.Namespace)
	vm := func(name string) (*kubevirtv1.VirtualMachine, error) {
		return vms.Get(r.Context(), name, metav1.GetOptions{})
	}
	s := &hypervisortest.Site{Provider: provider, CreateRequest: "POST /apis/kubevirt.io/v1/namespaces/*/virtualmachines", OccupiedReason: "VirtualMachineNameTaken"}
	s.VMs = func(m *v1alpha1.Machine) (found []string) {
		list, err := vms.List(r.Context(), metav1.ListOptions{})
		if err != nil {
			r.Error(err)
			return nil
		}
		for _, vm := range list.Items {
			if vm.Annotations[v1alpha1.AnnotationUID] == string(m.UID) {
				found = append(found, string(vm.UID))
			}
		}
		return found
	}
	s.Left = func(m *v1alpha1.Machine) (left []string) {
		for _, list := range []kube.ObjectList{
			&kubevirtv1.VirtualMachineList{}, &kubevirtv1.VirtualMachineInstanceList{}, &corev1.PersistentVolumeClaimList{}, &corev1.SecretList{},
		} {
			if err := guests.List(r.Context(), r.Namespace, v1alpha1.LabelMachine+"="+m.Name, list); err != nil {
				r.Error(err)
			}
			if n := lengthOf(list); n > 0 {
				left = append(left, fmt.Sprintf("%d of %T", n, list))
			}
		}
		return left
	}
	s.Foreign = func(m *v1alpha1.Machine) func() bool {
		name, always := m.Name, kubevirtv1.RunStrategyAlways
		other := &kubevirtv1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelMachine: name}},
			Spec:       kubevirtv1.VirtualMachineSpec{RunStrategy: &always, Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{}},
		}
		other, err := vms.Create(r.Context(), other, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			r.Fatal(err)
		}
		return func() bool {
			now, err := vm(name)
			return err == nil && now.UID == other.UID && now.Generation == other.Generation && now.DeletionTimestamp == nil
		}
	}
	s.Destroy = func(m *v1alpha1.Machine) {
		if err := vms.Delete(r.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
			r.Fatal(err)
		}
	}
	s.Starts = startsSeen(r, config)
	s.Sizes = func(m *v1alpha1.Machine) (int, string) {
		made, err := vm(m.Name)
		claim := &corev1.PersistentVolumeClaim{}
		if err == nil {
			err = guests.Get(r.Context(), r.Namespace, m.Name+"-root", claim)
		}
		if err != nil {
			r.Error(err)
			return 0, ""
		}
		return int(made.Spec.Template.Spec.Domain.CPU.Cores), claim.Spec.Resources.Requests.Storage().String()
	}
	return s
}

func lengthOf(list kube.ObjectList) int {
	switch l := list.(type) {
	case *kubevirtv1.VirtualMachineList:
		return len(l.Items)
	case *kubevirtv1.VirtualMachineInstanceList:
		return len(l.Items)
	case *corev1.PersistentVolumeClaimList:
		return len(l.Items)
	case *corev1.SecretList:
		return len(l.Items)
	}
	return 0
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/transport"
)

// createClass creates a MachineClass with two disks, whose name begins with the namespace of the test, and delivers its event,
// again after an error, such as a conflict with another delivery.
func (e *env) createClass(name string, cores int32) *v1alpha1.MachineClass {
	e.Helper()
	c := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace + "-" + name}, Spec: v1alpha1.MachineClassSpec{
		Resources: v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: cores, Sockets: 2}, Memory: &v1alpha1.MachineMemory{Size: "6Gi"}},
		Disks:     []v1alpha1.MachineDisk{{Name: "root", Size: "30Gi"}, {Name: "data", Size: "50Gi", StorageClass: "fast-ssd"}},
	}}
	if err := e.Kube.Create(e.Context(), c); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = e.Kube.Delete(context.Background(), c) })
	event := lookAtProvider(c.Name, events.TypeRefAdd)
	events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MachineClass", Name: c.Name}.Set(&event, "")
	feed.Until(e, "the event of MachineClass "+c.Name+" is delivered", func() (bool, string) {
		_, err := e.function.handle(e.Context(), event)
		return err == nil, fmt.Sprint(err)
	})
	return c
}

func (e *env) cpuOf(name string) *kubevirtv1.CPU {
	e.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	if err := e.Kube.Get(e.Context(), e.Namespace, name, vm); err != nil {
		e.Fatal(err)
	}
	return vm.Spec.Template.Spec.Domain.CPU
}

// TestMachineClass creates a Machine before its MachineClass, and deletes and replaces the MachineClass while
// the Machine runs.
func TestMachineClass(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	template := s.Namespace + "-xl"
	s.Create(machineWith("vm", func(m *v1alpha1.MachineSpec) { m.Template = template }))
	m := s.awaitMachine("vm", "waiting for its MachineClass", hypervisortest.HasReason("TemplateNotFound"))
	ask := "ask the platform team to create MachineClass " + template
	if got := condition(m, "Ready"); !strings.Contains(got, "write small, medium") || !strings.Contains(got, ask) || m.Status.Phase != v1alpha1.MachinePending {
		t.Errorf("phase %s, condition %q", m.Status.Phase, got)
	}

	class := s.createClass("xl", 3)
	m = s.awaitMachine("vm", "runs with the size of its MachineClass", hypervisortest.IsRunning)
	if cpu := s.cpuOf("vm"); cpu.Cores != 3 || cpu.Sockets != 2 {
		t.Errorf("the virtual machine has CPU %+v", cpu)
	}
	if m.Status.Template == nil || m.Status.Template.Name != template || m.Status.Template.MachineClass == nil {
		t.Fatalf("the status has template %+v", m.Status.Template)
	}

	if err := s.Kube.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "1" })
	s.awaitMachine("vm", "restarts without its MachineClass", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && m.Status.RestartToken == "1"
	})
	s.createClass("xl", 8)
	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "2" })
	s.awaitMachine("vm", "restarts with its former size", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && m.Status.RestartToken == "2"
	})
	if cpu := s.cpuOf("vm"); cpu.Cores != 3 {
		t.Errorf("a MachineClass that was created again has changed the virtual machine: CPU %+v", cpu)
	}
	s.Create(machineWith("new", func(m *v1alpha1.MachineSpec) { m.Template = template }))
	s.awaitMachine("new", "runs", hypervisortest.IsRunning)
	if cpu := s.cpuOf("new"); cpu.Cores != 8 {
		t.Errorf("a new virtual machine has CPU %+v, want that of the new MachineClass", cpu)
	}
}

// TestUnknownTemplateOfRunningMachine gives a running Machine a template that does not exist. The Machine says
// so, and everything else goes on.
func TestUnknownTemplateOfRunningMachine(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(machineWith("vm", func(m *v1alpha1.MachineSpec) { m.Template = "small" }))
	s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.Template = s.Namespace + "-xl" })
	m := s.awaitMachine("vm", "reports the template", hypervisortest.HasReason("TemplateNotFound"))
	if got := condition(m, "Ready"); !strings.HasSuffix(got, "Until then the machine keeps the size of small") || m.Status.Phase != v1alpha1.MachineRunning {
		t.Errorf("phase %s, condition %q", m.Status.Phase, got)
	}

	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerStopped })
	s.awaitMachine("vm", "stops, and still reports the template", func(m *v1alpha1.Machine) bool {
		return m.Status.Phase == v1alpha1.MachineStopped && hypervisortest.HasReason("TemplateNotFound")(m)
	})
	s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerRunning })
	m = s.awaitMachine("vm", "starts again", func(m *v1alpha1.Machine) bool {
		return m.Status.Phase == v1alpha1.MachineRunning && hypervisortest.HasReason("TemplateNotFound")(m)
	})
	if cpu := s.cpuOf("vm"); cpu.Cores != 1 || m.Status.Template.Name != "small" {
		t.Errorf("the virtual machine has CPU %+v, and the status template %+v", cpu, m.Status.Template)
	}

	s.createClass("xl", 3)
	s.awaitMachine("vm", "has the size of the MachineClass", func(m *v1alpha1.Machine) bool {
		return m.Status.Template.MachineClass != nil && !hypervisortest.HasReason("TemplateNotFound")(m)
	})
	if cpu := s.cpuOf("vm"); cpu.Cores != 3 {
		t.Errorf("the virtual machine has CPU %+v", cpu)
	}
	if err := s.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	s.awaitEmpty()
}

// TestReadsOfMachineClasses counts the requests for MachineClasses: none for a built-in template, and one
// until the status has a copy.
func TestReadsOfMachineClasses(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	class := s.createClass("xl", 3)
	var reads atomic.Int64
	config := rest.CopyConfig(s.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport.Func(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/machineclasses") {
				reads.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	client, err := kube.New(config, "test", kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	f := newFunction(client, nil, nil)
	for name, tc := range map[string]struct {
		reason, template string
		status           *v1alpha1.MachineTemplate
		want             int64
	}{
		"BuiltIn": {"a built-in template has no object", "medium", nil, 0},
		"Class":   {"the MachineClass is read", class.Name, nil, 1},
		"Kept":    {"the status has a copy", class.Name, &v1alpha1.MachineTemplate{Name: class.Name, MachineClass: &class.Spec}, 0},
		"Unknown": {"the message lists the MachineClasses of the same read", "huge", nil, 1},
	} {
		reads.Store(0)
		m := machineWith(name, func(m *v1alpha1.MachineSpec) {
			m.Template, m.ProviderRef = tc.template, &v1alpha1.ProviderReference{Name: "kubevirt"}
		})
		m.Namespace, m.Status.Template = s.Namespace, tc.status
		_, _ = f.resolveSize(t.Context(), m)
		if got := reads.Load(); got != tc.want {
			t.Errorf("%s: %s: %d requests, want %d", name, tc.reason, got, tc.want)
		}
	}
}

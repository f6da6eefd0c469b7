package main

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
)

// dropProvider deletes a MachineProvider at the end of a test, whatever its finalizers.
func (e *env) dropProvider(name string) {
	e.Cleanup(func() {
		_ = kube.OnConflict(func() error {
			p := &v1alpha1.MachineProvider{}
			if err := e.Kube.Get(context.Background(), "", name, p); err != nil {
				return nil
			}
			before := p.DeepCopy()
			p.Finalizers = nil
			if _, err := e.Kube.Patch(context.Background(), before, p); err != nil {
				return err
			}
			return e.Kube.Delete(context.Background(), p)
		})
	})
}

// TestProviderInUse deletes a MachineProvider that has a Machine.
func TestProviderInUse(t *testing.T) {
	t.Parallel()
	r := newEnv(t, proxmoxSite)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	if err := r.Kube.Delete(t.Context(), r.providerNow()); err != nil {
		t.Fatal(err)
	}
	w := &hypervisortest.Wire{}
	for range 2 {
		if err := deliver(t.Context(), r.process(w), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
	}
	c := meta.FindStatusCondition(r.providerNow().Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Reason != "InUse" || c.Message != "waiting for Machine "+r.Namespace+"/m1 to be deleted" {
		t.Errorf("the Machine is not named: %+v", c)
	}
	if writes := sum(w.Count, "PATCH /apis/vitistack.io"); writes != 1 {
		t.Errorf("%d writes for an unchanged status: %v", writes, w.Count)
	}
	r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m2"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider},
	}})
	rejected := r.Drive("m2", &hypervisortest.Wire{}, "is not created any more", hypervisortest.HasReason("MachineProviderDeleting"))
	if message := meta.FindStatusCondition(rejected.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(message, "spec.providerRef") || len(rejected.Finalizers) > 0 {
		t.Errorf("finalizers %v: %s", rejected.Finalizers, message)
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
	if err := r.Kube.Get(t.Context(), "", r.Site.Provider, &v1alpha1.MachineProvider{}); !kube.NotFound(err) {
		t.Errorf("the MachineProvider is deleted with its last Machine: %v", err)
	}
}

func TestEnumerate(t *testing.T) {
	t.Parallel()
	for want, users := range map[string][]string{
		"Machine n/a":          {"n/a"},
		"Machines n/a and n/b": {"n/a", "n/b"},
		"Machines n/a, n/b, n/c, n/d, n/e and 1 more": {"n/a", "n/b", "n/c", "n/d", "n/e", "n/f"},
	} {
		if got := enumerate(users); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestProviderReleasedMeanwhile releases a MachineProvider after a delivery reads it and before the
// delivery records its Machine on it. The record is undone.
func TestProviderReleasedMeanwhile(t *testing.T) {
	t.Parallel()
	r := newEnv(t, proxmoxSite)
	f, p := r.process(&hypervisortest.Wire{}), r.providerNow()
	if err := f.providers.addFinalizer(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := r.Kube.Delete(t.Context(), r.providerNow()); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t.Context(), f, lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
		t.Fatal(err)
	}
	m := r.CreateMachine("m1")
	if _, err := f.addFinalizersAndProvider(t.Context(), m.DeepCopy(), m, p); err == nil {
		t.Error("a Machine is recorded on a deleted MachineProvider")
	}
	if err := r.Kube.Get(t.Context(), r.Namespace, "m1", m); err != nil {
		t.Fatal(err)
	}
	if len(m.Finalizers) > 0 || m.Annotations[v1alpha1.AnnotationProvider] != "" {
		t.Errorf("the Machine could not be deleted: finalizers %v, annotations %v", m.Finalizers, m.Annotations)
	}
}

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

func TestNextHandover(t *testing.T) {
	t.Parallel()
	const digest = "d1"
	type change = func(*v1alpha1.Machine)
	provided := func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationMachineConfig] = digest }
	installed := func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationInstalled] = "true" }
	holds := func(digest string) change {
		return func(m *v1alpha1.Machine) {
			setCondition(m, v1alpha1.ConditionMachineConfigRemoved, false, "Held", v1alpha1.MachineConfigHeldMessage(digest))
		}
	}
	removed := func(m *v1alpha1.Machine) { setMachineConfigRemoved(m, hypervisor.HandoverTake) }
	for name, tc := range map[string]struct {
		reason  string
		changes []change
		want    hypervisor.Handover
	}{
		"New":       {"its configuration does not exist yet", nil, hypervisor.HandoverNone},
		"Provided":  {"the node needs it", []change{provided}, hypervisor.HandoverGive},
		"Held":      {"the node starts with it", []change{provided, holds(digest)}, hypervisor.HandoverNone},
		"Changed":   {"another one has been provided since", []change{provided, holds("d0")}, hypervisor.HandoverGive},
		"Installed": {"the keys must not stay at the hypervisor", []change{installed, holds(digest)}, hypervisor.HandoverTake},
		"Forgotten": {"what the status does not say may be there", []change{installed}, hypervisor.HandoverTake},
		"Removed":   {"there is nothing left to do", []change{installed, removed}, hypervisor.HandoverNone},
		"Reset":     {"its disk was made anew", []change{provided, removed}, hypervisor.HandoverGive},
		"Waiting":   {"its disk was made anew, and nothing is provided yet", []change{removed}, hypervisor.HandoverNone},
		"Stranger": {"it is no node of a cluster", []change{provided, func(m *v1alpha1.Machine) {
			m.Spec.CloudInit.SecretRef.Name = "my-data"
		}}, hypervisor.HandoverNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := aNode("m1")
			for _, change := range tc.changes {
				change(m)
			}
			if got := decideHandover(m); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// aNode is the Machine of a node.
func aNode(name string) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelClusterName: "shop"}, Annotations: map[string]string{}},
		Spec: v1alpha1.MachineSpec{Template: "small", CloudInit: &v1alpha1.CloudInit{
			SecretRef: &v1alpha1.CloudInitSecretReference{Name: v1alpha1.MachineConfigSecretName(name), Key: v1alpha1.MachineConfigKey},
		}},
	}
}

// provide plays bootstrap-talos: it writes the configuration of a node, and says so.
func (r *rig) provide(m *v1alpha1.Machine, config string) {
	r.Helper()
	r.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: m.MachineConfigSecret(), OwnerReferences: kube.Owned(m, v1alpha1.GroupVersion.String(), "Machine")},
		Data:       map[string][]byte{v1alpha1.MachineConfigKey: []byte(config)},
	})
	r.edit(m.Name, func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachineConfig, configDigest([]byte(config)))
		delete(m.Annotations, v1alpha1.AnnotationInstalled)
	})
}

// installed plays bootstrap-talos: it has seen the node with its configuration.
func (r *rig) installed(m *v1alpha1.Machine) {
	r.Helper()
	r.edit(m.Name, func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationInstalled, "true")
		delete(m.Annotations, v1alpha1.AnnotationMachineConfig)
	})
}

// held takes a node from its first start to a disk that is made anew.
func held(t *testing.T, at func(*rig) *site) {
	t.Parallel()
	r := newRig(t, at)
	everyHarm(t, (*wire).writes, func(name string, w *wire) {
		m := aNode(name)
		m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: r.site.provider}
		r.create(m)
		m = r.drive(name, w, "waits for its configuration", ready(reasonWaitingForMachineConfig))
		if vms := r.site.vms(m); len(vms) > 0 || len(m.Status.IPAddresses) == 0 {
			t.Errorf("%s (%s): it has virtual machines %v and addresses %v, want none and one", name, w.harm, vms, m.Status.IPAddresses)
		}
		const first, second = "version: v1alpha1 # one\n", "version: v1alpha1 # two\n"
		r.provide(m, first)
		m = r.drive(name, w, "runs with its configuration", func(m *v1alpha1.Machine) bool { return running(m) && m.HoldsMachineConfig() })
		r.one(m, w)
		if got := r.site.found(m); got != first {
			t.Errorf("%s (%s): the node found %q, want %q", name, w.harm, got, first)
		}
		r.installed(m)
		m = r.drive(name, w, "has its configuration taken away", func(m *v1alpha1.Machine) bool { return running(m) && decideHandover(m) == hypervisor.HandoverNone })
		if err := r.kube.Get(r.Context(), r.namespace, m.MachineConfigSecret(), &corev1.Secret{}); !kube.NotFound(err) {
			t.Errorf("%s (%s): the Secret is left: %v", name, w.harm, err)
		}
		if r.site.held(m) {
			t.Errorf("%s (%s): the hypervisor still has the keys of a node that runs", name, w.harm)
		}
		starts := r.site.starts(m)
		r.provide(m, second)
		m = r.drive(name, w, "has its configuration again", func(m *v1alpha1.Machine) bool { return running(m) && m.HoldsMachineConfig() })
		if r.site.starts(m) != starts {
			t.Errorf("%s (%s): it was restarted, and nobody asked for that", name, w.harm)
		}
		r.edit(name, func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
		m = r.drive(name, w, "restarts, and finds its configuration", func(m *v1alpha1.Machine) bool {
			return running(m) && m.Status.RestartToken == "once" && r.site.found(m) == second
		})
		r.clean(m, &wire{})
	})
}

package hypervisortest

import (
	"slices"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
)

// ResyncEvent returns an event that requests a reconcile of a Machine.
func ResyncEvent(namespace, name string) event.Event {
	e := event.New()
	e.SetID("1")
	e.SetSource("/test")
	e.SetType(events.TypeResync)
	events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: namespace, Name: name}.Set(&e, "")
	return e
}

// IsRunning reports whether a Machine runs with its present spec.
func IsRunning(m *v1alpha1.Machine) bool {
	return m != nil && m.Status.Phase == v1alpha1.MachineRunning && HasReason("MachineRunning")(m) && m.Status.ObservedGeneration == m.Generation
}

// IsGone reports whether a Machine does not exist.
func IsGone(m *v1alpha1.Machine) bool { return m == nil }

// NewNode returns the Machine of a node of a cluster.
func NewNode(name string) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelClusterName: "shop"}, Annotations: map[string]string{}},
		Spec: v1alpha1.MachineSpec{Template: "small", CloudInit: &v1alpha1.CloudInit{
			SecretRef: &v1alpha1.CloudInitSecretReference{Name: v1alpha1.MachineConfigSecretName(name), Key: v1alpha1.MachineConfigKey},
		}},
	}
}

// Unserved as description of a NetworkConfiguration keeps it without addresses.
const Unserved = "unserved"

// HasReason returns a function that reports whether the condition Ready has a reason.
func HasReason(reason string) func(*v1alpha1.Machine) bool {
	return func(m *v1alpha1.Machine) bool {
		return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Ready" && c.Reason == reason })
	}
}

package main

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// kind is a kind of object that functions settle.
type kind struct {
	name     string
	resource schema.GroupVersionResource
	// rest are the phases in which an object that is not Ready is settled all the
	// same: nothing happens to it until its spec changes.
	rest []string
	// always is whether every object is looked at each time.
	always bool
}

// kinds are in the order of the layers, so that what others wait for comes first.
var kinds = []kind{
	{name: "NetworkNamespace", resource: v1alpha2.GroupVersion.WithResource("networknamespaces")},
	{name: "IPAllocation", resource: v1alpha2.GroupVersion.WithResource("ipallocations"), rest: []string{string(v1alpha2.IPAllocationReleased)}},
	{name: "NetworkConfiguration", resource: v1alpha1.GroupVersion.WithResource("networkconfigurations")},
	{name: "MachineProvider", resource: v1alpha1.GroupVersion.WithResource("machineproviders"), always: true},
	{name: "Machine", resource: v1alpha1.GroupVersion.WithResource("machines"), rest: []string{string(v1alpha1.MachineStopped)}},
	{name: "KubernetesCluster", resource: v1alpha1.GroupVersion.WithResource("kubernetesclusters")},
}

// object is what matters here of an object of any kind.
type object struct {
	Metadata struct {
		Namespace         string       `json:"namespace"`
		Name              string       `json:"name"`
		UID               string       `json:"uid"`
		ResourceVersion   string       `json:"resourceVersion"`
		Generation        int64        `json:"generation"`
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Phase              string       `json:"phase"`
		Address            string       `json:"address"`
		ObservedGeneration int64        `json:"observedGeneration"`
		NextCheckTime      *metav1.Time `json:"nextCheckTime"`
		Conditions         []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// page is one page of a list of objects.
type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

// settled tells whether nobody has to look at an object:
//
//	being deleted                        no
//	spec newer than the status           no
//	its next check is due                no
//	Ready                                yes
//	not Ready, in a phase of rest        yes
//	not Ready                            no
func settled(k kind, o object, now time.Time) bool {
	s := o.Status
	switch {
	case k.always || o.Metadata.DeletionTimestamp != nil || s.ObservedGeneration < o.Metadata.Generation:
		return false
	case s.NextCheckTime != nil && !now.Before(s.NextCheckTime.Time):
		return false
	}
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionReady && c.Status == string(metav1.ConditionTrue) {
			return true
		}
	}
	for _, phase := range k.rest {
		if s.Phase == phase {
			return true
		}
	}
	return false
}

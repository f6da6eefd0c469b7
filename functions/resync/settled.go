package main

import (
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// kind is a kind of object that functions settle.
type kind struct {
	name     string
	resource schema.GroupVersionResource
	// make is an empty object of the kind.
	make func() kube.Object
	// rest is the reason for which an object that is not Ready is settled all the same:
	// nothing happens to it until its spec changes.
	rest string
	// always is whether every object is looked at each time.
	always bool
	// round is after how long an object is looked at although it is Ready, zero for never.
	round time.Duration
}

// Rounds find what nobody tells of: segments that are not at their source any more,
// and reservations whose holder is gone without having been released; nodes that have
// died or been changed by others; virtual machines whose deletion was not told.
const (
	shortRound = 10 * time.Minute
	longRound  = time.Hour
)

const (
	networkNamespace     = "NetworkNamespace"
	networkConfiguration = "NetworkConfiguration"
	ipAllocation         = "IPAllocation"
	kubernetesCluster    = "KubernetesCluster"
)

// kinds are in the order of the layers, so that what others wait for comes first.
var kinds = []kind{
	{
		name: networkNamespace, resource: v1alpha2.GroupVersion.WithResource("networknamespaces"),
		make:  func() kube.Object { return &v1alpha2.NetworkNamespace{} },
		round: shortRound,
	},
	{
		name: ipAllocation, resource: v1alpha2.GroupVersion.WithResource("ipallocations"),
		make: func() kube.Object { return &v1alpha2.IPAllocation{} },
		rest: "Lapsed",
	},
	{
		name: networkConfiguration, resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"),
		make: func() kube.Object { return &v1alpha1.NetworkConfiguration{} },
	},
	{
		name: "MachineProvider", resource: v1alpha1.GroupVersion.WithResource("machineproviders"),
		make:   func() kube.Object { return &v1alpha1.MachineProvider{} },
		always: true,
	},
	{
		name: "Machine", resource: v1alpha1.GroupVersion.WithResource("machines"),
		make: func() kube.Object { return &v1alpha1.Machine{} },
		rest: "Stopped", round: longRound,
	},
	{
		name: kubernetesCluster, resource: v1alpha1.GroupVersion.WithResource("kubernetesclusters"),
		make:  func() kube.Object { return &v1alpha1.KubernetesCluster{} },
		round: shortRound,
	},
	{
		name: "EtcdBackup", resource: v1alpha1.GroupVersion.WithResource("etcdbackups"),
		make: func() kube.Object { return &v1alpha1.EtcdBackup{} },
	},
}

// object is what matters here of an object of any kind.
type object struct {
	Metadata struct {
		Namespace         string            `json:"namespace"`
		Name              string            `json:"name"`
		UID               string            `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		Generation        int64             `json:"generation"`
		CreationTimestamp metav1.Time       `json:"creationTimestamp"`
		DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		IPAllocation *struct {
			Type string `json:"type"`
		} `json:"ipAllocation"`
		NetworkNamespaceName     string `json:"networkNamespaceName"`
		NetworkConfigurationName string `json:"networkConfigurationName"`
		IPFamily                 string `json:"ipFamily"`
	} `json:"spec"`
	Status struct {
		Phase              string             `json:"phase"`
		Address            string             `json:"address"`
		ObservedGeneration int64              `json:"observedGeneration"`
		NextCheckTime      *metav1.Time       `json:"nextCheckTime"`
		Conditions         []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// page is one page of a list of objects.
type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

// ready is the condition Ready.
func (o object) ready() metav1.Condition {
	for _, c := range o.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c
		}
	}
	return metav1.Condition{}
}

// exhausted tells whether an object waits for an address to become free.
func (o object) exhausted() bool { return o.ready().Reason == "PoolExhausted" }

// asked tells whether somebody wants an object looked at.
func (o object) asked() bool {
	_, asked := o.Metadata.Annotations[v1alpha1.AnnotationReconcile]
	return asked
}

// changed tells whether the status does not answer what the object is now.
func (o object) changed() bool {
	return o.Metadata.DeletionTimestamp != nil || o.Status.ObservedGeneration < o.Metadata.Generation
}

// settled tells whether nobody has to look at an object:
//
//	somebody asks for it                 no
//	being deleted                        no
//	spec newer than the status           no
//	it says when to look again           until then
//	Ready                                yes, but for its turn in a round
//	not Ready, for the reason of rest    yes
//	not Ready                            no
func settled(k kind, o object, now time.Time) bool {
	s := o.Status
	switch {
	case k.always || o.asked() || o.changed():
		return false
	case s.NextCheckTime != nil:
		return now.Before(s.NextCheckTime.Time)
	case o.ready().Status == metav1.ConditionTrue:
		return k.round == 0 || !turn(o, k.round, now)
	default:
		return k.rest != "" && o.ready().Reason == k.rest
	}
}

// turn tells whether an object that has a part elsewhere has its turn. Its UID
// determines in which minute of each round that is, so that not all have it at once.
func turn(o object, round time.Duration, now time.Time) bool {
	if !o.elsewhere() {
		return false
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(o.Metadata.UID))
	minutes := int64(round / time.Minute)
	return now.Unix()/60%minutes == int64(hash.Sum32())%minutes
}

// elsewhere tells whether a part of an object is kept by somebody who sends no
// events: Kea has the reservations of a network of dhcp, and NAM or NetBox the
// segment that they were asked for.
func (o object) elsewhere() bool {
	if p := o.Spec.IPAllocation; p == nil || p.Type == string(v1alpha2.AllocationDHCP) {
		return true
	}
	asked := o.Metadata.Annotations[v1alpha1.AnnotationProvider]
	return asked == v1alpha2.ProviderNAM || asked == v1alpha2.ProviderNetBox
}

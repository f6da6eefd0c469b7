package main

import (
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/due"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// kind is a kind of object that functions reconcile.
type kind struct {
	name     string
	resource schema.GroupVersionResource
	// make is an empty object of the kind.
	make func() kube.Object
	// round is after how long an object is reconciled although it is Ready, zero for never.
	round time.Duration
}

// A full round finds what no event tells: segments that are not at their source any more,
// and reservations whose holder is gone without having been released; nodes that have
// died or been changed by others; virtual machines whose deletion was not told; hypervisors
// that do not answer. The PingSource asks for one every fullRound.
const (
	fullRound = 10 * time.Minute
	longRound = time.Hour
)

const (
	networkNamespace     = "NetworkNamespace"
	networkConfiguration = "NetworkConfiguration"
	ipAllocation         = "IPAllocation"
	kubernetesCluster    = "KubernetesCluster"
	machine              = "Machine"
	machineProvider      = "MachineProvider"
)

// kinds are in the order of the layers, so that what others wait for comes first, except
// that MachineProviders come after the Machines that they count.
var kinds = []kind{
	{
		name: networkNamespace, resource: v1alpha2.GroupVersion.WithResource("networknamespaces"),
		make:  func() kube.Object { return &v1alpha2.NetworkNamespace{} },
		round: fullRound,
	},
	{
		name: ipAllocation, resource: v1alpha2.GroupVersion.WithResource("ipallocations"),
		make: func() kube.Object { return &v1alpha2.IPAllocation{} },
	},
	{
		name: networkConfiguration, resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"),
		make: func() kube.Object { return &v1alpha1.NetworkConfiguration{} },
	},
	{
		name: machine, resource: v1alpha1.GroupVersion.WithResource("machines"),
		make:  func() kube.Object { return &v1alpha1.Machine{} },
		round: longRound,
	},
	{
		name: machineProvider, resource: v1alpha1.GroupVersion.WithResource("machineproviders"),
		make:  func() kube.Object { return &v1alpha1.MachineProvider{} },
		round: fullRound,
	},
	{
		name: kubernetesCluster, resource: v1alpha1.GroupVersion.WithResource("kubernetesclusters"),
		make:  func() kube.Object { return &v1alpha1.KubernetesCluster{} },
		round: fullRound,
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
		due.Status
		Phase   string `json:"phase"`
		Address string `json:"address"`
	} `json:"status"`
}

// page is one page of a list of objects.
type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

// exhausted tells whether an object waits for an address to become free.
func (o object) exhausted() bool { return o.Status.Ready().Reason == "PoolExhausted" }

// asked tells whether somebody wants an object looked at.
func (o object) asked() bool {
	_, asked := o.Metadata.Annotations[v1alpha1.AnnotationReconcile]
	return asked
}

// changed tells whether the status does not answer what the object is now.
func (o object) changed() bool {
	return o.Metadata.DeletionTimestamp != nil || o.Status.ObservedGeneration < o.Metadata.Generation
}

// settled reports whether an object needs no reconcile at a time: it is not due, and a
// full round does not include it.
func settled(k kind, o object, now time.Time, full bool) bool {
	need := due.Decide(k.name, &metav1.ObjectMeta{
		Generation: o.Metadata.Generation, DeletionTimestamp: o.Metadata.DeletionTimestamp, Annotations: o.Metadata.Annotations,
	}, o.Status.Status)
	if !need.Never {
		return !need.Due(now)
	}
	ready := o.Status.Ready().Status == metav1.ConditionTrue
	return !full || !ready || k.round == 0 || !turn(o, k.round, now)
}

// turn reports whether a full round includes an object that has a part elsewhere. Where
// not each full round does, the object's UID determines which, so that not all have their
// turn at once.
func turn(o object, round time.Duration, now time.Time) bool {
	if !o.elsewhere() {
		return false
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(o.Metadata.UID))
	rounds := int64(round / fullRound)
	return now.Unix()/int64(fullRound/time.Second)%rounds == int64(hash.Sum32())%rounds
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

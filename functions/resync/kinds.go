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
	// make returns an empty object of the kind.
	make func() kube.Object
	// interval is how often a full round reconciles an object that is Ready, zero for never.
	interval time.Duration
}

// A full round finds what no event reports: segments that are gone from their source,
// reservations whose NetworkConfiguration is gone, nodes that have died or were changed by
// others, deleted virtual machines, and hypervisors that do not answer. The PingSource asks
// for one every fullRoundInterval.
const (
	fullRoundInterval = 10 * time.Minute
	longInterval      = time.Hour
)

const (
	networkNamespace     = "NetworkNamespace"
	networkConfiguration = "NetworkConfiguration"
	ipAllocation         = "IPAllocation"
	kubernetesCluster    = "KubernetesCluster"
	machine              = "Machine"
	machineProvider      = "MachineProvider"
)

// allocationKind is the kind IPAllocation.
var allocationKind = kind{
	name: ipAllocation, resource: v1alpha2.GroupVersion.WithResource("ipallocations"),
	make: func() kube.Object { return &v1alpha2.IPAllocation{} },
}

// kinds are in the order of the layers, so that an object comes after the objects that it
// waits for. MachineProviders come after the Machines that they count.
var kinds = []kind{
	{
		name: networkNamespace, resource: v1alpha2.GroupVersion.WithResource("networknamespaces"),
		make:     func() kube.Object { return &v1alpha2.NetworkNamespace{} },
		interval: fullRoundInterval,
	},
	allocationKind,
	{
		name: networkConfiguration, resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"),
		make: func() kube.Object { return &v1alpha1.NetworkConfiguration{} },
	},
	{
		name: machine, resource: v1alpha1.GroupVersion.WithResource("machines"),
		make:     func() kube.Object { return &v1alpha1.Machine{} },
		interval: longInterval,
	},
	{
		name: machineProvider, resource: v1alpha1.GroupVersion.WithResource("machineproviders"),
		make:     func() kube.Object { return &v1alpha1.MachineProvider{} },
		interval: fullRoundInterval,
	},
	{
		name: kubernetesCluster, resource: v1alpha1.GroupVersion.WithResource("kubernetesclusters"),
		make:     func() kube.Object { return &v1alpha1.KubernetesCluster{} },
		interval: fullRoundInterval,
	},
	{
		name: "EtcdBackup", resource: v1alpha1.GroupVersion.WithResource("etcdbackups"),
		make: func() kube.Object { return &v1alpha1.EtcdBackup{} },
	},
	{
		name: "ClusterTemplate", resource: v1alpha1.GroupVersion.WithResource("clustertemplates"),
		make: func() kube.Object { return &v1alpha1.ClusterTemplate{} },
	},
}

// object has the fields of an object of any kind that decide whether it needs a reconcile.
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
		ManagedFields     []struct {
			Time metav1.Time `json:"time"`
		} `json:"managedFields"`
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

func (o object) key() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// lastWritten returns the time of the last write of an object, in whole seconds.
func (o object) lastWritten() time.Time {
	last := o.Metadata.CreationTimestamp.Time
	for _, f := range o.Metadata.ManagedFields {
		if f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// isRequested reports whether an annotation requests a reconcile.
func (o object) isRequested() bool {
	_, asked := o.Metadata.Annotations[v1alpha1.AnnotationReconcile]
	return asked
}

// isChanged reports whether the spec has changed since the status was written, or the object
// is being deleted.
func (o object) isChanged() bool {
	return o.Metadata.DeletionTimestamp != nil || o.Status.ObservedGeneration < o.Metadata.Generation
}

// window is the time whose turns a full round takes: those since the start of the previous full
// round, which is zero if it is unknown.
type window struct{ previous, start time.Time }

// needsReconcile reports whether an object is due at a time, or a full round includes it. full is
// nil for another round.
func needsReconcile(k kind, o object, now time.Time, full *window) bool {
	need := due.Decide(k.name, &metav1.ObjectMeta{
		Generation: o.Metadata.Generation, DeletionTimestamp: o.Metadata.DeletionTimestamp, Annotations: o.Metadata.Annotations,
	}, o.Status.Status)
	if !need.Never {
		return need.Due(now)
	}
	ready := o.Status.Ready().Status == metav1.ConditionTrue
	return full != nil && ready && k.interval != 0 && isIncluded(o, k.interval, *full)
}

// isIncluded reports whether a full round includes an object with a part outside of the API
// server. If not every round does, the UID of the object determines its turn, so that the
// objects are spread over the rounds. A round that starts late takes the turns that were missed.
func isIncluded(o object, interval time.Duration, w window) bool {
	if !o.hasExternalPart() {
		return false
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(o.Metadata.UID))
	turns := int64(interval / fullRoundInterval)
	last := turnAt(w.start)
	first := last
	if !w.previous.IsZero() {
		first = max(min(turnAt(w.previous)+1, last), last-turns+1)
	}
	own := int64(hash.Sum32()) % turns
	for n := first; n <= last; n++ {
		if n%turns == own {
			return true
		}
	}
	return false
}

// turnAt returns the number of the turn at a time.
func turnAt(t time.Time) int64 { return t.Unix() / int64(fullRoundInterval/time.Second) }

// hasExternalPart reports whether a system that sends no events keeps a part of the object:
// Kea the reservations of a network of type dhcp, and NAM or NetBox the segment of a network.
func (o object) hasExternalPart() bool {
	if p := o.Spec.IPAllocation; p == nil || p.Type == string(v1alpha2.AllocationDHCP) {
		return true
	}
	asked := o.Metadata.Annotations[v1alpha1.AnnotationProvider]
	return asked == v1alpha2.ProviderNAM || asked == v1alpha2.ProviderNetBox
}

package main

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
		// Without a schedule it takes a snapshot of a cluster that was created again, whose events it does not get.
		interval: longInterval,
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

// isAllocated reports whether an IPAllocation has an address.
func (o object) isAllocated() bool {
	return o.Status.Phase == string(v1alpha2.IPAllocationAllocated) && o.Status.Address != ""
}

// uids returns the UIDs that an object had before it was created again, and the one that it has.
func (o object) uids() []string {
	return v1alpha1.UIDs(&metav1.ObjectMeta{UID: types.UID(o.Metadata.UID), Annotations: o.Metadata.Annotations})
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

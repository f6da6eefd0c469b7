package inventory

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// FromKubernetes extracts what the gateway needs of an object. It keeps no reference to the object. An unknown type is an error.
func FromKubernetes(from any) (*Object, error) {
	switch o := from.(type) {
	case *v1alpha2.NetworkNamespace:
		return fromNetwork(o)
	case *v1alpha1.NetworkConfiguration:
		return fromAddress(o)
	case *v1alpha2.IPAllocation:
		return fromAllocation(o)
	case *v1alpha1.Machine:
		return fromMachine(o)
	case *v1alpha1.MachineProvider:
		return fromProvider(o)
	case *v1alpha1.KubernetesCluster:
		return fromCluster(o)
	case *v1alpha1.EtcdBackup:
		return fromBackup(o)
	case *v1alpha1.ClusterTemplate:
		return fromTemplate(o)
	case *corev1.Node:
		return fromNode(o)
	case *VirtualMachine:
		return fromVM(o)
	case *VirtualMachineInstance:
		return fromInstance(o)
	case *KnativeService:
		return fromFunction(o)
	case *corev1.ConfigMap:
		if o.Name == backend.ConfigMapBackends {
			return fromBackends(o)
		}
		return fromReport(o)
	case *coordinationv1.Lease:
		return fromLease(o)
	default:
		return nil, fmt.Errorf("convert object: the gateway knows no %T", from)
	}
}

// vitistack is the API group of the stack's own kinds.
const vitistack = "vitistack.io"

// lastApplied is the annotation with a copy of the whole object, including its secrets.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

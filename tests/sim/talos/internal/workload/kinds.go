package workload

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// kind is one resource the API serves.
type kind struct {
	schema.GroupVersionKind
	plural     string
	short      []string
	namespaced bool
	// status is whether the resource has a status subresource. A write to one of the two never changes
	// the other.
	status bool
}

var (
	nodeKind       = &kind{core("Node"), "nodes", []string{"no"}, false, true}
	namespaceKind  = &kind{core("Namespace"), "namespaces", []string{"ns"}, false, true}
	podKind        = &kind{core("Pod"), "pods", []string{"po"}, true, true}
	serviceKind    = &kind{core("Service"), "services", []string{"svc"}, true, true}
	daemonSetKind  = &kind{apps("DaemonSet"), "daemonsets", []string{"ds"}, true, true}
	deploymentKind = &kind{apps("Deployment"), "deployments", []string{"deploy"}, true, true}
	replicaSetKind = &kind{apps("ReplicaSet"), "replicasets", []string{"rs"}, true, true}
	leaseKind      = &kind{schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, "leases", nil, true, false}
	budgetKind     = &kind{
		schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		"poddisruptionbudgets", []string{"pdb"}, true, true,
	}
)

// kinds are all resources, in the order of discovery.
var kinds = []*kind{
	nodeKind, namespaceKind, podKind, serviceKind,
	{core("Event"), "events", []string{"ev"}, true, false},
	{core("ConfigMap"), "configmaps", []string{"cm"}, true, false},
	{core("Secret"), "secrets", nil, true, false},
	{core("ServiceAccount"), "serviceaccounts", []string{"sa"}, true, false},
	daemonSetKind, deploymentKind, replicaSetKind,
	{apps("StatefulSet"), "statefulsets", []string{"sts"}, true, true},
	{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, "jobs", nil, true, true},
	budgetKind,
	{rbac("ClusterRole"), "clusterroles", nil, false, false},
	{rbac("ClusterRoleBinding"), "clusterrolebindings", nil, false, false},
	{rbac("Role"), "roles", nil, true, false},
	{rbac("RoleBinding"), "rolebindings", nil, true, false},
	leaseKind,
	{storage("VolumeAttachment"), "volumeattachments", nil, false, true},
	// What add-ons define and no controller here acts on: no pod is refused by a quota, and no volume is provisioned.
	{core("ResourceQuota"), "resourcequotas", []string{"quota"}, true, true},
	{core("LimitRange"), "limitranges", []string{"limits"}, true, false},
	{core("PersistentVolumeClaim"), "persistentvolumeclaims", []string{"pvc"}, true, true},
	{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, "cronjobs", []string{"cj"}, true, true},
	{networking("NetworkPolicy"), "networkpolicies", []string{"netpol"}, true, false},
	{networking("Ingress"), "ingresses", []string{"ing"}, true, true},
	{networking("IngressClass"), "ingressclasses", nil, false, false},
	{schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}, "priorityclasses", []string{"pc"}, false, false},
	{storage("StorageClass"), "storageclasses", []string{"sc"}, false, false},
	{storage("CSIDriver"), "csidrivers", nil, false, false},
}

func core(name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: name}
}

func apps(name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: name}
}

func rbac(name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: name}
}

func networking(name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: name}
}

func storage(name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: name}
}

// kindOf returns the resource in a path.
func kindOf(group, version, plural string) (*kind, bool) {
	for _, k := range kinds {
		if k.Group == group && k.Version == version && k.plural == plural {
			return k, true
		}
	}
	return nil, false
}

func kindByPlural(plural, group string) (*kind, bool) { return kindOf(group, "v1", plural) }

// resource returns the name in errors.
func (k *kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.plural}
}

func (k *kind) singular() string { return strings.ToLower(k.Kind) }

// empty returns a new object of the kind, with its type set.
func (k *kind) empty() runtime.Object {
	obj, err := scheme.Scheme.New(k.GroupVersionKind)
	if err != nil {
		panic("workload: " + err.Error()) // the table above has known kinds only
	}
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return obj
}

func (k *kind) verbs() metav1.Verbs {
	return metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

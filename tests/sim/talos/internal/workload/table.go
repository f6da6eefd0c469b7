package workload

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// wantsTable reports whether the client prefers a table, as kubectl get does.
func wantsTable(req *http.Request) bool {
	first, _, _ := strings.Cut(req.Header.Get("Accept"), ",")
	return strings.Contains(first, "as=Table") && strings.Contains(first, "v=v1;")
}

// table returns objects with the columns of kubectl.
func table(k *kind, objects []runtime.Object, revision string) metav1.Table {
	t := metav1.Table{
		TypeMeta:          metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ListMeta:          metav1.ListMeta{ResourceVersion: revision},
		ColumnDefinitions: columns(k),
		Rows:              []metav1.TableRow{},
	}
	for _, obj := range objects {
		meta := metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
		}
		m := metaOf(obj)
		meta.Name, meta.Namespace, meta.UID = m.GetName(), m.GetNamespace(), m.GetUID()
		meta.Labels, meta.ResourceVersion, meta.CreationTimestamp = m.GetLabels(), m.GetResourceVersion(), m.GetCreationTimestamp()
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells(k, obj), Object: runtime.RawExtension{Object: &meta}})
	}
	return t
}

// column is one column of a kind. Wide columns are shown on request.
type column struct {
	name  string
	wide  bool
	value func(obj runtime.Object) string
}

func columnsOf(k *kind) []column {
	name := column{name: "Name", value: func(o runtime.Object) string { return metaOf(o).GetName() }}
	age := column{name: "Age", value: func(o runtime.Object) string {
		return duration.HumanDuration(time.Since(metaOf(o).GetCreationTimestamp().Time))
	}}
	switch k {
	case nodeKind:
		return []column{name, {"Status", false, nodeColumn(nodeState)}, {"Roles", false, nodeColumn(roles)}, age,
			{"Version", false, nodeColumn(func(n *corev1.Node) string { return n.Status.NodeInfo.KubeletVersion })},
			{"Internal-IP", true, nodeColumn(internalIP)}, {"External-IP", true, func(runtime.Object) string { return "<none>" }},
			{"OS-Image", true, nodeColumn(func(n *corev1.Node) string { return n.Status.NodeInfo.OSImage })},
			{"Kernel-Version", true, nodeColumn(func(n *corev1.Node) string { return n.Status.NodeInfo.KernelVersion })},
			{"Container-Runtime", true, nodeColumn(func(n *corev1.Node) string { return n.Status.NodeInfo.ContainerRuntimeVersion })},
		}
	case podKind:
		return []column{name, {"Ready", false, podColumn(readyContainers)}, {"Status", false, podColumn(podState)},
			{"Restarts", false, func(runtime.Object) string { return "0" }}, age,
			{"IP", true, podColumn(func(p *corev1.Pod) string { return cmp.Or(p.Status.PodIP, "<none>") })},
			{"Node", true, podColumn(func(p *corev1.Pod) string { return cmp.Or(p.Spec.NodeName, "<none>") })},
		}
	case namespaceKind:
		return []column{name, {"Status", false, func(o runtime.Object) string { return string(o.(*corev1.Namespace).Status.Phase) }}, age}
	case deploymentKind:
		return []column{name, {"Ready", false, func(o runtime.Object) string {
			d := o.(*appsv1.Deployment)
			return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, replicas(d.Spec.Replicas))
		}}, age}
	case budgetKind:
		return []column{name, {"Allowed Disruptions", false, func(o runtime.Object) string {
			return fmt.Sprint(o.(*policyv1.PodDisruptionBudget).Status.DisruptionsAllowed)
		}}, age}
	}
	return []column{name, age}
}

func columns(k *kind) []metav1.TableColumnDefinition {
	var defs []metav1.TableColumnDefinition
	for _, c := range columnsOf(k) {
		def := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.name == "Name" {
			def.Format = "name"
		}
		if c.wide {
			def.Priority = 1
		}
		defs = append(defs, def)
	}
	return defs
}

func cells(k *kind, obj runtime.Object) []any {
	var values []any
	for _, c := range columnsOf(k) {
		values = append(values, c.value(obj))
	}
	return values
}

func nodeColumn(value func(*corev1.Node) string) func(runtime.Object) string {
	return func(o runtime.Object) string { return value(o.(*corev1.Node)) }
}

func podColumn(value func(*corev1.Pod) string) func(runtime.Object) string {
	return func(o runtime.Object) string { return value(o.(*corev1.Pod)) }
}

func readyContainers(p *corev1.Pod) string {
	ready := 0
	if podReady(p) {
		ready = len(p.Spec.Containers)
	}
	return fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers))
}

func podState(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	return string(p.Status.Phase)
}

func internalIP(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return "<none>"
}

func nodeState(node *corev1.Node) string {
	state := "NotReady"
	if NodeReady(node) {
		state = "Ready"
	}
	if node.Spec.Unschedulable {
		state += ",SchedulingDisabled"
	}
	return state
}

func roles(node *corev1.Node) string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(node.Labels)) {
		if role, ok := strings.CutPrefix(name, "node-role.kubernetes.io/"); ok {
			found = append(found, role)
		}
	}
	if len(found) == 0 {
		return "<none>"
	}
	return strings.Join(found, ",")
}

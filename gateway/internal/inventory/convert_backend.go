package inventory

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// controlPlaneLabel marks the nodes that run no virtual machines.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// schedulableLabel is what KubeVirt puts on the nodes that it runs on. It is not
// "true" where KubeVirt takes no machine there.
const schedulableLabel = "kubevirt.io/schedulable"

func fromNode(n *corev1.Node) (*Object, error) {
	_, controlPlane := n.Labels[controlPlaneLabel]
	schedulable, host := n.Labels[schedulableLabel]
	capacity, free := n.Status.Capacity, n.Status.Allocatable
	facts := &Node{
		Host: host, ControlPlane: controlPlane,
		Unschedulable: n.Spec.Unschedulable || schedulable != "true",
		Version:       n.Status.NodeInfo.KubeletVersion,
		MilliCPUs:     capacity.Cpu().MilliValue(), Memory: capacity.Memory().Value(),
		MilliCPUsFree: free.Cpu().MilliValue(), MemoryFree: free.Memory().Value(),
	}
	readiness := Readiness{}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			facts.Ready = c.Status == corev1.ConditionTrue
			readiness = Readiness{Ready: facts.Ready, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.UTC()}
		}
	}
	o, err := newObject(KindNode, "v1", &n.ObjectMeta, facts, nil, nil)
	if err != nil {
		return nil, err
	}
	// A kubelet renews its status every few seconds, which is no update.
	o.Updated = firstTime(readiness.Since, o.Created)
	o.Annotations, o.Readiness = nil, readiness
	return o, nil
}

// KnativeGroupVersion is the API version of Knative Services.
var KnativeGroupVersion = schema.GroupVersion{Group: "serving.knative.dev", Version: "v1"}

// KnativeService has the fields of a Knative Service that show its health.
type KnativeService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            KnativeServiceStatus `json:"status,omitempty"`
}

// KnativeServiceStatus has the conditions. Knative leaves out other fields that the API conventions require.
type KnativeServiceStatus struct {
	URL        string             `json:"url,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyObject copies the service.
func (s *KnativeService) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), s.Status.Conditions...)
	return &out
}

// KnativeServiceList is a list of KnativeServices.
type KnativeServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KnativeService `json:"items"`
}

// DeepCopyObject copies the list.
func (l *KnativeServiceList) DeepCopyObject() runtime.Object {
	out := &KnativeServiceList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*KnativeService))
	}
	return out
}

func fromFunction(s *KnativeService) (*Object, error) {
	readiness := readinessOf(KindFunction, &s.ObjectMeta, s.Status.Conditions)
	o, err := newObject(KindFunction, KnativeGroupVersion.String(), &s.ObjectMeta, &Function{Ready: readiness.Ready, URL: s.Status.URL}, nil, nil)
	if err != nil {
		return nil, err
	}
	o.Annotations, o.Readiness = nil, readiness
	return o, nil
}

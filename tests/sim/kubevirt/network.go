package kubevirt

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var networkGroup = schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}

// networkAttachment is a NetworkAttachmentDefinition. Only its existence matters here.
type networkAttachment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

func (n *networkAttachment) DeepCopyObject() runtime.Object {
	c := &networkAttachment{TypeMeta: n.TypeMeta}
	n.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return c
}

type networkAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []networkAttachment `json:"items"`
}

func (l *networkAttachmentList) DeepCopyObject() runtime.Object {
	c := &networkAttachmentList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*networkAttachment))
	}
	return c
}

func addNetworkAttachment(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(networkGroup.WithKind("NetworkAttachmentDefinition"), &networkAttachment{})
	scheme.AddKnownTypeWithName(networkGroup.WithKind("NetworkAttachmentDefinitionList"), &networkAttachmentList{})
	metav1.AddToGroupVersion(scheme, networkGroup)
	return nil
}

// attachmentName resolves the name of a Multus network in an instance's namespace.
func attachmentName(namespace, network string) types.NamespacedName {
	if before, after, found := strings.Cut(network, "/"); found {
		return types.NamespacedName{Namespace: before, Name: after}
	}
	return types.NamespacedName{Namespace: namespace, Name: network}
}

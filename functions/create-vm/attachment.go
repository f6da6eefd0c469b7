package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// NetworkAttachmentDefinition is the kind of the Network Plumbing Working Group,
// as far as it is written here. Its own module is not needed for two fields.
type NetworkAttachmentDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkAttachmentDefinitionSpec `json:"spec"`
}

// NetworkAttachmentDefinitionSpec is a CNI configuration in JSON.
type NetworkAttachmentDefinitionSpec struct {
	Config string `json:"config"`
}

var attachmentVersion = schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}

// DeepCopyObject implements runtime.Object.
func (d *NetworkAttachmentDefinition) DeepCopyObject() runtime.Object {
	out := *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// networkOwner makes the NetworkNamespace own its attachments, so that they go
// with it. A network that is gone owns nothing.
func (k *kubevirt) networkOwner(ctx context.Context, namespace, name string) ([]metav1.OwnerReference, error) {
	nn := &v1alpha2.NetworkNamespace{}
	err := k.home.Get(ctx, namespace, name, nn)
	if kube.NotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []metav1.OwnerReference{{
		APIVersion: v1alpha2.GroupVersion.String(), Kind: "NetworkNamespace", Name: nn.Name, UID: nn.UID,
	}}, nil
}

package kubevirt

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// NetworkAttachmentDefinition is the kind of the Network Plumbing Working Group,
// as far as it is written here. Its own module would be a dependency for two fields.
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

// attachments connects interfaces to networks, by NetworkAttachmentDefinitions in the cluster of the virtual machines.
type attachments struct {
	home, guests *kube.Client
	local        bool
	defaults     v1alpha1.ProviderDefaults
}

func (k *Hypervisor) attachments() attachments {
	return attachments{home: k.home, guests: k.guests, local: k.local, defaults: k.defaults}
}

// ensure creates the missing NetworkAttachmentDefinitions of interfaces. They belong to the
// network, not to the machine. networks are those of a virtual machine that exists.
func (a attachments) ensure(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, networks []kubevirtv1.Network) error {
	for _, n := range want.NICs {
		if err := a.ensureOne(ctx, m, n, attachmentNameIn(networks, n, a.defaults)); err != nil {
			return err
		}
	}
	return nil
}

// ensureOne creates the NetworkAttachmentDefinition of an interface if it is missing. It returns
// a UserError if the name belongs to another segment.
func (a attachments) ensureOne(ctx context.Context, m *v1alpha1.Machine, n hypervisor.NIC, name string) error {
	config, err := attachmentConfig(n, name, a.defaults)
	if err != nil {
		return err
	}
	there := &NetworkAttachmentDefinition{}
	err = a.guests.Get(ctx, m.Namespace, name, there)
	if kube.NotFound(err) {
		return a.create(ctx, m, n, name, config)
	}
	if err != nil {
		return err
	}
	if !sameSegment(there.Spec.Config, config) {
		return reconcile.UserError{Reason: "NameTaken", Message: fmt.Sprintf(
			"NetworkAttachmentDefinition %s is not of bridge %s and VLAN %d: delete it if no machine uses it, or rename the network or the bridge", name, bridgeName(n, a.defaults), n.VLAN)}
	}
	return a.enableSpoofCheck(ctx, there)
}

// enableSpoofCheck enables the check of MAC addresses in an attachment that the stack has
// created. It does not change those of others.
func (a attachments) enableSpoofCheck(ctx context.Context, there *NetworkAttachmentDefinition) error {
	if there.Labels[v1alpha1.LabelManagedBy] != managedBy {
		return nil
	}
	before := *there
	there.Spec.Config = withSpoofCheck(there.Spec.Config)
	_, err := a.guests.Patch(ctx, &before, there)
	return err
}

// create creates a NetworkAttachmentDefinition.
func (a attachments) create(ctx context.Context, m *v1alpha1.Machine, n hypervisor.NIC, name, config string) error {
	definition := &NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: managedBy}},
		Spec:       NetworkAttachmentDefinitionSpec{Config: config},
	}
	if a.local {
		owner, err := a.networkOwner(ctx, m.Namespace, n.Network)
		if err != nil {
			return err
		}
		definition.OwnerReferences = owner
	}
	err := a.guests.Create(ctx, definition)
	if kube.AlreadyExists(err) {
		return a.ensureOne(ctx, m, n, name) // another machine has created it
	}
	return err
}

// networkOwner returns the owner reference to a NetworkNamespace, so its attachments are deleted with
// it. It returns none if the NetworkNamespace does not exist.
func (a attachments) networkOwner(ctx context.Context, namespace, name string) ([]metav1.OwnerReference, error) {
	nn := &v1alpha2.NetworkNamespace{}
	err := a.home.Get(ctx, namespace, name, nn)
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

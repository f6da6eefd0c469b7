package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// planOwners returns a row for each object of a cluster or a Machine that has lost its owner: a restore leaves owner
// references out, and a deletion with --cascade=orphan removes them.
func (a *Adopter) planOwners(ctx context.Context) ([]Row, error) {
	var children []unstructured.Unstructured
	owners := map[string]*unstructured.Unstructured{}
	for _, k := range []cluster.Kind{
		cluster.MustFindKind("KubernetesCluster"), cluster.MustFindKind("Machine"), cluster.MustFindKind("NetworkConfiguration"),
		cluster.MustFindKind("IPAllocation"), secretKind, configMapKind,
	} {
		selector := ""
		if k.Group == "" {
			selector = v1alpha1.LabelClusterName
		}
		found, err := a.listLabelled(ctx, k, a.In, selector)
		if err != nil {
			return nil, err
		}
		children = append(children, found...)
	}
	for i := range children {
		u := &children[i]
		owners[ownerKey(u.GetNamespace(), u.GetKind(), u.GetName())] = u
	}
	var rows []Row
	for i := range children {
		u := &children[i]
		kind, name := formerOwner(u)
		owner := owners[ownerKey(u.GetNamespace(), kind, name)]
		if owner != nil && owner.GetDeletionTimestamp() == nil && metav1.GetControllerOf(u) == nil {
			rows = append(rows, decideOwner(u, owner))
		}
	}
	return rows, nil
}

func ownerKey(namespace, kind, name string) string { return kind + " " + namespace + "/" + name }

// formerOwner returns the kind and the name of the object that a function made another one for, or nothing if no function
// has made it.
func formerOwner(u *unstructured.Unstructured) (kind, name string) {
	labels := u.GetLabels()
	configuration, _, _ := unstructured.NestedString(u.Object, "spec", "networkConfigurationName")
	switch by := labels[v1alpha1.LabelManagedBy]; {
	case u.GetKind() == "NetworkConfiguration" && by == "create-vm":
		return "Machine", u.GetName()
	case u.GetKind() == "IPAllocation" && labels[v1alpha2.LabelNetworkConfiguration] != "":
		return "NetworkConfiguration", configuration
	case u.GetKind() == "Secret" && by == "bootstrap-talos" && strings.HasSuffix(u.GetName(), machineConfigSuffix):
		return "Machine", strings.TrimSuffix(u.GetName(), machineConfigSuffix)
	case by == "bootstrap-talos":
		return "KubernetesCluster", labels[v1alpha1.LabelClusterName]
	default:
		return "", ""
	}
}

// machineConfigSuffix is the end of the name of each Secret with a machine configuration.
var machineConfigSuffix = v1alpha1.MachineConfigSecretName("")

// decideOwner decides whether an object without an owner gets one that has the name of its former owner. It does if that has former UIDs:
// another object of the same name has none.
func decideOwner(u, owner *unstructured.Unstructured) Row {
	what := owner.GetKind() + " " + owner.GetName()
	r := Row{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), What: what, Action: Adopts, Note: "it becomes the owner again"}
	if len(v1alpha1.FormerUIDs(owner)) == 0 {
		r.Action, r.Note = Decision, fmt.Sprintf("%s %s has no owner: if it belongs to this %s, write the UID that the %s had before into its annotation %s, or else delete the %s",
			u.GetKind(), u.GetName(), owner.GetKind(), owner.GetKind(), v1alpha1.AnnotationFormerUIDs, u.GetKind())
		return r
	}
	controls := true
	references := append(slices.Clone(u.GetOwnerReferences()), metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: &controls,
	})
	metadata := map[string]any{"ownerReferences": references}
	if group, _, isGroup := strings.Cut(u.GetAPIVersion(), "/"); isGroup && group == v1alpha1.GroupVersion.Group {
		metadata["annotations"] = map[string]any{v1alpha1.AnnotationReconcile: "adopt"}
	}
	r.Patch = map[string]any{"metadata": metadata}
	return r
}

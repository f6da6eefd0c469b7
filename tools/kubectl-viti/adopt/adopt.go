package adopt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// Adopter has the objects of a namespace adopt what exists.
type Adopter struct {
	*cluster.Connection
	// In is the namespace, or empty for all.
	In string
	// Unmarked allows to adopt what has no mark.
	Unmarked bool
}

var (
	virtualMachine = cluster.Kind{Name: "VirtualMachine", Resource: "virtualmachines", Group: "kubevirt.io", Version: "v1"}
	secretKind     = cluster.Kind{Name: "Secret", Resource: "secrets", Version: "v1"}
	configMapKind  = cluster.Kind{Name: "ConfigMap", Resource: "configmaps", Version: "v1"}
)

// kindOf returns the kind of the object of a row.
func kindOf(r Row) cluster.Kind {
	switch r.Kind {
	case secretKind.Name:
		return secretKind
	case configMapKind.Name:
		return configMapKind
	default:
		return cluster.MustFindKind(r.Kind)
	}
}

// Plan returns what exists and what happens to it. It changes nothing.
func (a *Adopter) Plan(ctx context.Context) ([]Row, error) {
	rows, err := a.planOwners(ctx)
	if err != nil {
		return nil, err
	}
	machines, err := a.planMachines(ctx)
	if err != nil {
		return nil, err
	}
	rows = append(rows, machines...)
	networks, err := a.planNetworks(ctx)
	if err != nil {
		return nil, err
	}
	clusters, err := a.planClusters(ctx)
	return append(append(rows, networks...), clusters...), err
}

// Apply writes the patches of rows, for which the functions adopt what exists. Of rows that need a decision it only
// removes the provider of an operator. A second call writes the same again.
func (a *Adopter) Apply(ctx context.Context, rows []Row) error {
	for _, r := range rows {
		if r.ClearsProvider {
			if err := a.clearProvider(ctx, r); err != nil {
				return err
			}
		}
		if r.Action != Adopts {
			continue
		}
		if r.IsNew {
			_, err := a.Resource(secretKind.GVR()).Namespace(r.Namespace).Create(ctx, &unstructured.Unstructured{Object: r.Patch}, metav1.CreateOptions{FieldManager: "kubectl-viti"})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create Secret %s/%s: %w", r.Namespace, r.Name, err)
			}
			continue
		}
		body, err := json.Marshal(r.Patch)
		if err != nil {
			return err
		}
		objects := a.Resource(kindOf(r).GVR()).Namespace(r.Namespace)
		_, err = objects.Patch(ctx, r.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "kubectl-viti"})
		if err == nil {
			err = removeFinalizers(ctx, objects, r.Name)
		}
		if err != nil {
			return fmt.Errorf("change %s %s/%s: %w", r.Kind, r.Namespace, r.Name, err)
		}
	}
	return nil
}

// clearProvider removes status.provider of a Machine: while it is set, the API server refuses another spec.networks and
// spec.providerRef.
func (a *Adopter) clearProvider(ctx context.Context, r Row) error {
	_, err := a.Resource(kindOf(r).GVR()).Namespace(r.Namespace).Patch(ctx, r.Name, types.MergePatchType, []byte(`{"status":{"provider":null}}`),
		metav1.PatchOptions{FieldManager: "kubectl-viti"}, "status")
	if err != nil {
		return fmt.Errorf("remove status.provider of %s %s/%s: %w", r.Kind, r.Namespace, r.Name, err)
	}
	return nil
}

// operatorFinalizers are finalizers of the separate operators that no function of the stack has, so that a deletion would wait for ever.
var operatorFinalizers = []string{"kubernetescluster.vitistack.io/finalizer", "machine.vitistack.io/finalizer", "vitistack.io/proxmox-machine"}

func hasOperatorFinalizer(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(u.GetFinalizers(), func(f string) bool { return slices.Contains(operatorFinalizers, f) })
}

// removeFinalizers removes the operators' finalizers from an object, and keeps those that a function adds at the same time.
func removeFinalizers(ctx context.Context, objects dynamic.ResourceInterface, name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := objects.Get(ctx, name, metav1.GetOptions{})
		if err != nil || !hasOperatorFinalizer(u) {
			return err
		}
		u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return slices.Contains(operatorFinalizers, f) }))
		_, err = objects.Update(ctx, u, metav1.UpdateOptions{FieldManager: "kubectl-viti"})
		return err
	})
}

// planMachines compares the Machines with the VirtualMachines of this cluster, and with what their status names at Proxmox VE.
func (a *Adopter) planMachines(ctx context.Context) ([]Row, error) {
	vms, err := a.list(ctx, virtualMachine, a.In)
	if err != nil {
		return nil, err
	}
	machines, err := a.list(ctx, cluster.MustFindKind("Machine"), "") // a mark may be of any namespace
	if err != nil {
		return nil, err
	}
	uids, byName := map[string]string{}, map[string]*unstructured.Unstructured{}
	var rows []Row
	for i := range machines {
		m := &machines[i]
		name := m.GetNamespace() + "/" + m.GetName()
		uids[string(m.GetUID())], byName[name] = name, m
		if r, ok := decideProxmox(m, a.Unmarked); ok && (a.In == "" || a.In == m.GetNamespace()) {
			rows = append(rows, r)
		}
	}
	for i := range vms {
		if m := byName[vms[i].GetNamespace()+"/"+vms[i].GetName()]; m != nil {
			rows = append(rows, decideMachine(m, &vms[i], uids, a.Unmarked))
		}
	}
	return rows, nil
}

// planNetworks looks for addresses without an IPAllocation or a mark.
func (a *Adopter) planNetworks(ctx context.Context) ([]Row, error) {
	configurations, err := a.list(ctx, cluster.MustFindKind("NetworkConfiguration"), a.In)
	if err != nil {
		return nil, err
	}
	allocations, err := a.list(ctx, cluster.MustFindKind("IPAllocation"), a.In)
	if err != nil {
		return nil, err
	}
	allocated := map[string]bool{}
	for i := range allocations {
		name, _, _ := unstructured.NestedString(allocations[i].Object, "spec", "networkConfigurationName")
		allocated[allocations[i].GetNamespace()+"/"+name] = true
	}
	var rows []Row
	for i := range configurations {
		nc := &configurations[i]
		if r, ok := decideNetwork(nc, allocated[nc.GetNamespace()+"/"+nc.GetName()], a.Unmarked); ok {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// planClusters looks for what the talos-operator has left: the Secrets with the keys of clusters, and their Machines.
func (a *Adopter) planClusters(ctx context.Context) ([]Row, error) {
	clusters, err := a.list(ctx, cluster.MustFindKind("KubernetesCluster"), a.In)
	if err != nil {
		return nil, err
	}
	machines, err := a.list(ctx, cluster.MustFindKind("Machine"), a.In)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for i := range clusters {
		kc := &clusters[i]
		id, _, _ := unstructured.NestedString(kc.Object, "spec", "data", "clusterId")
		if id == "" {
			continue
		}
		found, err := a.planKeys(ctx, kc, id)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
		for j := range machines {
			if m := &machines[j]; len(found) > 0 && m.GetNamespace() == kc.GetNamespace() && m.GetLabels()[v1alpha1.LabelClusterID] == id {
				rows = append(rows, decideNode(kc, m))
			}
		}
	}
	return rows, nil
}

// planKeys returns a row for the keys of a cluster, and one for its spec, if the talos-operator has a Secret with the cluster's ID.
func (a *Adopter) planKeys(ctx context.Context, kc *unstructured.Unstructured, id string) ([]Row, error) {
	found, err := a.Resource(secretKind.GVR()).Namespace(kc.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelClusterID + "=" + id})
	if err != nil {
		return nil, fmt.Errorf("list the Secrets of KubernetesCluster %s/%s: %w", kc.GetNamespace(), kc.GetName(), err)
	}
	var rows []Row
	for j := range found.Items {
		keys := keysOf(kc, &found.Items[j])
		if keys == nil {
			continue
		}
		r := Row{Kind: "Secret", Namespace: kc.GetNamespace(), Name: keys.GetName(), What: "Secret " + found.Items[j].GetName(), Action: Adopts, IsNew: true, Patch: keys.Object,
			Note: "the keys of the talos-operator are copied; its Secret stays"}
		_, err := a.Resource(secretKind.GVR()).Namespace(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			r.Action, r.Note = Adopted, ""
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read Secret %s/%s: %w", r.Namespace, r.Name, err)
		}
		rows = append(rows, r)
		if spec, ok := decideCluster(kc, &found.Items[j]); ok {
			rows = append(rows, spec)
		}
	}
	return rows, nil
}

func (a *Adopter) list(ctx context.Context, k cluster.Kind, namespace string) ([]unstructured.Unstructured, error) {
	return a.listLabelled(ctx, k, namespace, "")
}

// listLabelled lists the objects of a kind that have a label, or all.
func (a *Adopter) listLabelled(ctx context.Context, k cluster.Kind, namespace, label string) ([]unstructured.Unstructured, error) {
	all, err := a.ListPages(ctx, k, namespace, label)
	switch {
	case apierrors.IsNotFound(err): // the cluster does not have the kind, as KubeVirt's, or one that an operator lacks
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", k.Resource, a.Explain(err, k, ""))
	}
	return all, nil
}

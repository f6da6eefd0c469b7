package move

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// Actions of a Row.
const (
	Moves    = "moves"
	Copied   = "is copied"
	Moved    = "moved already"
	Removed  = "copy is removed"
	Differs  = "differs"
	Decision = "decide"
)

// Row is a line of the plan of a move: what happens to an object, and why.
type Row struct {
	Kind, Namespace, Name string
	// Action is one of the constants above. A move with a Decision does not start.
	Action, Note string
}

// plan decides for each object whether it moves, from what the target has, and adds what the objects need there.
func (m *Mover) plan(ctx context.Context, all []object, there target) ([]Row, error) {
	var rows []Row
	for _, o := range there.stale {
		rows = append(rows, Row{Kind: o.kind.Name, Namespace: o.GetNamespace(), Name: o.GetName(), Action: Removed, Note: "it was deleted here after an interrupted move"})
	}
	for _, o := range all {
		r, err := m.planObject(o, there)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	needs, err := m.checkNeeds(ctx, all)
	return append(rows, needs...), err
}

func (m *Mover) planObject(o object, t target) (Row, error) {
	r := Row{Kind: o.kind.Name, Namespace: o.GetNamespace(), Name: o.GetName(), Action: Moves}
	there, exists := t.byKey[o.key()]
	exists = exists && !t.isStale(o)
	switch {
	case !exists && o.shared:
		r.Action, r.Note = Copied, "it also stays here, because other objects may use it: delete it here if none does"
	case !exists:
		r.Action, r.Note = decideObject(o)
	case there.GetUID() != "" && there.GetUID() == o.GetUID():
		return r, fmt.Errorf("%s and %s are the same management cluster, which has %s: write another --to-context", m.From.Config.Host, m.To.Config.Host, o.key())
	case isCopy(o, there.Unstructured) && isDeleted(o) && !v1alpha1.IsPaused(there):
		r.Action, r.Note = Moved, "it is being deleted here, and its copy stays: delete that at the target"
	case isCopy(o, there.Unstructured) && isDeleted(o):
		r.Action, r.Note = Decision, noteDeleted
	case isCopy(o, there.Unstructured) && o.isLayer() && !v1alpha1.IsPaused(o) && !v1alpha1.IsPaused(there):
		r.Action, r.Note = Decision, "the functions of both reconcile it: pause it here with the annotation "+v1alpha1.AnnotationPaused+"="+pausedByMove+", and write what has changed here into its copy"
	case isCopy(o, there.Unstructured):
		r.Action = Moved
	default:
		r.Action, r.Note = Decision, "the target has another object of this name: delete one of both, or move by parts with -n"
	}
	return r, nil
}

// decideObject decides whether an object moves that the target does not have.
func decideObject(o object) (action, note string) {
	by, paused := o.GetAnnotations()[v1alpha1.AnnotationPaused]
	switch {
	case paused && by != pausedByMove:
		return Decision, "it is paused: remove its annotation " + v1alpha1.AnnotationPaused
	case isDeleted(o) && paused:
		return Decision, noteDeleted
	case !paused && o.GetDeletionTimestamp() != nil:
		return Decision, "it is being deleted: wait until it is gone"
	default:
		return Moves, ""
	}
}

// noteDeleted is for an object that a user deletes while the move has it paused.
const noteDeleted = "it is being deleted, and waits because the move has paused it: remove its annotation " + v1alpha1.AnnotationPaused + " to have it deleted, and run the command again"

// isDeleted reports whether a user deletes an object. A move removes the finalizers of the functions first.
func isDeleted(o object) bool {
	return o.GetDeletionTimestamp() != nil && o.isLayer() && slices.ContainsFunc(o.GetFinalizers(), func(f string) bool {
		return f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents
	})
}

// isCopy reports whether an object at the target is that of the source, from an earlier call. The functions at
// the target may have created the Lease of the same address, and the target may have had a shared object with the same data.
func isCopy(o object, there *unstructured.Unstructured) bool {
	const address = "vitistack.io/address"
	return v1alpha1.HadUID(there, string(o.GetUID())) || o.shared && sameData(o, there) ||
		o.kind.Name == "Lease" && o.GetAnnotations()[address] != "" && there.GetAnnotations()[address] == o.GetAnnotations()[address]
}

// sameData reports whether two Secrets or ConfigMaps have the same content.
func sameData(o object, there *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(o.Object["data"], there.Object["data"]) && equality.Semantic.DeepEqual(o.Object["binaryData"], there.Object["binaryData"])
}

// checkNeeds compares the objects of the whole cluster that moving objects use.
func (m *Mover) checkNeeds(ctx context.Context, all []object) ([]Row, error) {
	var rows []Row
	for _, kind := range []cluster.Kind{cluster.MustFindKind("MachineProvider"), cluster.MustFindKind("MachineClass"), cluster.MustFindKind("ClusterTemplate"), cluster.MustFindKind("NetworkPool")} {
		list, err := m.From.Resource(kind.GVR()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, m.From.Explain(err, kind, "")
		}
		for i := range list.Items {
			if !isUsed(kind, list.Items[i].GetName(), all) {
				continue
			}
			r, err := m.checkNeed(ctx, kind, &list.Items[i])
			if err != nil {
				return nil, err
			}
			if r.Action != "" {
				rows = append(rows, r)
			}
		}
	}
	return rows, nil
}

// isUsed reports whether an object uses a MachineProvider, MachineClass, ClusterTemplate or NetworkPool, or may use it.
func isUsed(kind cluster.Kind, name string, all []object) bool {
	return slices.ContainsFunc(all, func(o object) bool {
		used := kind.Name == "NetworkPool" && o.kind.Name == "NetworkNamespace" || kind.Name == "MachineProvider" && o.GetAnnotations()[v1alpha1.AnnotationProvider] == name && o.kind.Name == "Machine"
		walk(o.Object["spec"], func(key string, value any) {
			ref, _ := value.(map[string]any)
			used = used || kind.Name == "MachineClass" && key == "template" && value == name || kind.Name == "ClusterTemplate" && key == "templateRef" && ref["name"] == name || kind.Name == "MachineProvider" && key == "providerRef" && ref["name"] == name
		})
		return used
	})
}

func (m *Mover) checkNeed(ctx context.Context, kind cluster.Kind, here *unstructured.Unstructured) (Row, error) {
	r := Row{Kind: kind.Name, Name: here.GetName()}
	there, err := m.To.Resource(kind.GVR()).Get(ctx, here.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.Action, r.Note = Decision, "the target has none of this name: create it there first"
		return r, nil
	case err != nil:
		return r, m.To.Explain(err, kind, here.GetName())
	}
	if equality.Semantic.DeepEqual(here.Object["spec"], there.Object["spec"]) {
		if isLocal(here) {
			r.Action, r.Note = Decision, "it is the KubeVirt of its own cluster at both: give the target's the kubeconfig of the present one in spec.credentialsRef"
		}
		return r, nil
	}
	r.Action, r.Note = Differs, "the specs differ: check that both lead to the same place"
	return r, nil
}

// isLocal reports whether a MachineProvider is the KubeVirt of its own cluster.
func isLocal(p *unstructured.Unstructured) bool {
	_, credentials, _ := unstructured.NestedFieldNoCopy(p.Object, "spec", "credentialsRef")
	kind, _, _ := unstructured.NestedString(p.Object, "spec", "type")
	return kind == string(v1alpha1.ProviderKubeVirt) && !credentials
}

// Package adopt finds what exists outside of the objects of a management cluster under other marks or without marks, and
// has the objects adopt it: after a restore, and after a migration from the separate operators.
package adopt

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Actions of a Row.
const (
	Adopts   = "adopts"
	Adopted  = "adopted already"
	Decision = "decide"
)

// Row is one thing that exists outside of an object.
type Row struct {
	// Kind, Namespace and Name are those of the object, and What is what exists.
	Kind, Namespace, Name, What string
	// Action is one of the constants above, and Note its reason, or what differs.
	Action, Note string
	// Patch is the merge patch of the object that has it adopt, or the object itself if IsNew is true, or nil.
	Patch map[string]any
	IsNew bool
	// ClearsProvider is whether status.provider of the object, a Machine, is that of an operator and has to be removed, whatever the Action.
	ClearsProvider bool
}

// decideMachine decides whether a Machine adopts the VirtualMachine of its name. machines maps the UIDs of all
// Machines to their names, and unmarked allows to adopt what has no mark:
//
//	mark of the VirtualMachine                      decision
//	the Machine's UID                               adopted already
//	that of another Machine that exists             decide
//	any other UID                                   adopts
//	none, and the kubevirt-operator's owner         adopts
//	none                                            adopts if unmarked, else decide
func decideMachine(m, vm *unstructured.Unstructured, machines map[string]string, unmarked bool) Row {
	r := Row{Kind: "Machine", Namespace: m.GetNamespace(), Name: m.GetName(), What: "VirtualMachine " + vm.GetName(), Action: Adopts, ClearsProvider: hasOperatorProvider(m)}
	mark, owner := vm.GetAnnotations()[v1alpha1.AnnotationUID], machineOwner(vm)
	own := string(m.GetUID())
	switch {
	case mark == own:
		r.Action = Adopted
		return r
	case mark != "" && machines[mark] != "":
		r.Action, r.Note = Decision, fmt.Sprintf("it belongs to Machine %s: delete one of both Machines", machines[mark])
		return r
	case mark == "" && owner != "" && owner != own && machines[owner] != "":
		r.Action, r.Note = Decision, fmt.Sprintf("it belongs to Machine %s: delete one of both Machines", machines[owner])
		return r
	case mark != "":
		r.Note = "it has the UID of a Machine that does not exist any more"
		r.Patch = annotate(m, mark)
	case owner == own:
		r.Note = "the kubevirt-operator made it"
		r.Patch = annotate(m, "")
	case unmarked:
		r.Note = "it has no mark"
		r.Patch = annotate(m, v1alpha1.Unmarked)
	default:
		r.Action, r.Note = Decision, "it has no mark: if it is this Machine's, run the command with --unmarked, or else rename one of both"
		return r
	}
	return keepMACs(r, m, vm)
}

// hasOperatorProvider reports whether status.provider of a Machine is that of a separate operator, which writes kubevirt or proxmox there. create-vm
// writes the name of the MachineProvider, after its finalizer.
func hasOperatorProvider(m *unstructured.Unstructured) bool {
	provider, _, _ := unstructured.NestedString(m.Object, "status", "provider")
	return provider != "" && !slices.Contains(m.GetFinalizers(), v1alpha1.FinalizerMachine)
}

// machineOwner returns the UID of the Machine that owns an object, or nothing.
func machineOwner(u *unstructured.Unstructured) string {
	for _, owner := range u.GetOwnerReferences() {
		if owner.Kind == "Machine" {
			return string(owner.UID)
		}
	}
	return ""
}

// annotate returns the patch that adds a former UID, or only requests a reconcile if the UID is empty.
func annotate(o *unstructured.Unstructured, former string) map[string]any {
	annotations := map[string]any{v1alpha1.AnnotationReconcile: "adopt"}
	value := o.GetAnnotations()[v1alpha1.AnnotationFormerUIDs]
	known := v1alpha1.HadUID(o, former) || former == v1alpha1.Unmarked && v1alpha1.AdoptsUnmarked(o)
	if former != "" && !known {
		annotations[v1alpha1.AnnotationFormerUIDs] = strings.TrimPrefix(value+","+former, ",")
	}
	return map[string]any{"metadata": map[string]any{"annotations": annotations}}
}

// keepMACs has a Machine keep the MAC addresses of its VirtualMachine: those of a former UID derive from that, and others are
// written into the spec.
func keepMACs(r Row, m, vm *unstructured.Unstructured) Row {
	if vm.GetAnnotations()[v1alpha1.AnnotationUID] != "" {
		return r
	}
	interfaces, _, _ := unstructured.NestedSlice(vm.Object, "spec", "template", "spec", "domain", "devices", "interfaces")
	networks, _, _ := unstructured.NestedSlice(m.Object, "spec", "networks")
	changed := false
	for _, i := range interfaces {
		has, _ := i.(map[string]any)
		mac, _ := has["macAddress"].(string)
		n := networkNamed(networks, has["name"])
		switch {
		case mac == "":
		case n == nil:
			return decideNetworks(r, fmt.Sprintf("interface %v has MAC address %s: add it to spec.networks with that macAddress and its networkName", has["name"], mac))
		case n["macAddress"] == nil:
			n["macAddress"], changed = mac, true
			r.Note += fmt.Sprintf("; spec.networks gets MAC address %s", mac)
		case !strings.EqualFold(fmt.Sprint(n["macAddress"]), mac):
			return decideNetworks(r, fmt.Sprintf("interface %v has MAC address %s, and spec.networks has %v: write the same into both", has["name"], mac, n["macAddress"]))
		}
	}
	if changed {
		r.Patch["spec"] = map[string]any{"networks": networks}
	}
	return r
}

// decideNetworks returns a row that needs a decision about spec.networks.
func decideNetworks(r Row, note string) Row {
	r.Action, r.Patch, r.Note = Decision, nil, note
	if r.ClearsProvider {
		r.Note += ". The API server accepts that after the command has run without --dry-run, which removes status.provider of the operator"
	}
	return r
}

func networkNamed(networks []any, name any) map[string]any {
	for _, n := range networks {
		if fields, ok := n.(map[string]any); ok && fields["name"] == name {
			return fields
		}
	}
	return nil
}

// decideProxmox decides whether a Machine of the proxmox-operator adopts the virtual machine that its status names. Proxmox VE is
// not asked: create-vm adopts it if it has the Machine's name and no mark. ok is false for other Machines.
func decideProxmox(m *unstructured.Unstructured, unmarked bool) (r Row, ok bool) {
	id, _, _ := unstructured.NestedString(m.Object, "status", "providerID")
	if !strings.HasPrefix(id, v1alpha1.ProxmoxIDScheme) || m.GetAnnotations()[v1alpha1.AnnotationProvider] != "" {
		return r, false
	}
	r = Row{Kind: "Machine", Namespace: m.GetNamespace(), Name: m.GetName(), What: id, Action: Adopts, Note: "the proxmox-operator made it", ClearsProvider: hasOperatorProvider(m)}
	if r.Patch = annotate(m, v1alpha1.Unmarked); !unmarked {
		r.Action, r.Patch, r.Note = Decision, nil, "it has no mark: if it is this Machine's, run the command with --unmarked"
	}
	return r, true
}

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	machineplan "github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// ResizeTimeout is the time after which the restart of a machine with its new size has failed.
const ResizeTimeout = 20 * time.Minute

func resizesControlPlane(t v1alpha1.ControlPlaneTopology) bool {
	return t.Rollout != nil && t.Rollout.Type == v1alpha1.RolloutInPlace
}

func resizesPool(p v1alpha1.WorkerPool) bool {
	return p.Rollout != nil && p.Rollout.Type == v1alpha1.RolloutInPlace
}

// NeedsClasses reports whether OutdatedMachines depends on the MachineClasses that exist: a machine of
// a group that resizes in place differs from it, and a template is not built in.
func (p Plan) NeedsClasses(machines map[string]*v1alpha1.Machine) bool {
	for _, m := range machines {
		g, ok := p.groupOf(m)
		if !ok || !g.InPlace || DifferenceFromPool(m, g) == "" {
			continue
		}
		if !v1alpha1.IsBuiltInClass(g.Properties.Template) || !v1alpha1.IsBuiltInClass(m.Spec.Template) {
			return true
		}
	}
	return false
}

// ResizeObjection returns why a Machine cannot get the template of its group in place, or an empty
// string if it can:
//
//	another provider                            cannot: a virtual machine stays where it is
//	the present or the new size is unknown      cannot: nothing can be compared
//	a disk more or less, or of another class    cannot
//	a smaller disk                              cannot: its data would be lost in part
//	other CPUs, other memory, a larger disk     can
//
// Fields of the Machine's own spec override both templates. classes are the MachineClasses that exist.
// The present size is that of the virtual machine, as its status says.
func ResizeObjection(m *v1alpha1.Machine, g Group, classes []v1alpha1.MachineClass) string {
	if differsInProvider(m, g) {
		return "a virtual machine stays at its provider"
	}
	present, known := m.Spec, classes
	if t := m.Status.Template; t != nil {
		present.Template, known = t.Name, t.Classes()
	}
	before, err := machineplan.ResolveSize(present, known)
	if err != nil {
		return "its present size is unknown: " + err.Error()
	}
	wanted := m.Spec
	wanted.Template = g.Properties.Template
	after, err := machineplan.ResolveSize(wanted, classes)
	if err != nil {
		return "its new size is unknown: " + err.Error()
	}
	return diskObjection(before.Disks, after.Disks)
}

// diskObjection returns why the disks of a virtual machine cannot become others, or an empty string.
func diskObjection(before, after []machineplan.Disk) string {
	for _, d := range after {
		i := slices.IndexFunc(before, func(b machineplan.Disk) bool { return b.Name == d.Name })
		if i < 0 {
			return fmt.Sprintf("disk %s is new", d.Name)
		}
		b := before[i]
		if cmp.Or(b.StorageClass, machineplan.DefaultClass) != cmp.Or(d.StorageClass, machineplan.DefaultClass) || b.AccessMode != d.AccessMode || b.VolumeMode != d.VolumeMode {
			return fmt.Sprintf("disk %s has another class or mode", d.Name)
		}
		if d.Size.Cmp(b.Size) < 0 {
			return fmt.Sprintf("disk %s would shrink from %s to %s", d.Name, b.Size.String(), d.Size.String())
		}
	}
	for _, b := range before {
		if !slices.ContainsFunc(after, func(d machineplan.Disk) bool { return d.Name == b.Name }) {
			return fmt.Sprintf("disk %s would be removed", b.Name)
		}
	}
	return ""
}

// ResizeLimit returns how many machines of a group are resized at the same time: one of the control
// plane, and maxUnavailable of a pool, at least one.
func ResizeLimit(g Group) int {
	if g.Role == v1alpha1.RoleControlPlane {
		return 1
	}
	return max(1, g.Rollout.MaxUnavailable)
}

// NextResizes returns the machines whose resize begins next: of the control plane, and then of one
// pool after the other. busy are the machines that are being resized.
func (p Plan) NextResizes(cluster string, machines map[string]*v1alpha1.Machine, outdated Outdated, busy []v1alpha1.MachineResize) []string {
	for _, g := range p.Groups {
		present := PoolMachines(machines, g.Pool, NamePrefix(cluster, g.Pool), assumeHealthy)
		next := SelectResizes(present, ResizeLimit(g), outdated.InPlace, busy)
		isOther := func(r v1alpha1.MachineResize) bool { return PoolOf(machines[r.Name]) != g.Pool }
		switch {
		case len(next) > 0 && slices.ContainsFunc(busy, isOther):
			return nil // the group before is not done
		case len(next) > 0:
			return next
		}
	}
	return nil
}

// SelectResizes returns the machines of a group whose resize begins next, the oldest first. Together
// with machines that are being resized, replaced or removed, there are at most limit.
func SelectResizes(present []PoolMachine, limit int, inPlace map[string]string, busy []v1alpha1.MachineResize) []string {
	var candidates []PoolMachine
	for _, s := range present {
		isBusy := slices.ContainsFunc(busy, func(r v1alpha1.MachineResize) bool { return r.Name == s.name })
		switch {
		case isBusy || s.Leaving || s.IsReplaced():
			limit--
		case inPlace[s.name] != "":
			candidates = append(candidates, s)
		}
	}
	slices.SortFunc(candidates, func(a, b PoolMachine) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.ordinal, b.ordinal))
	})
	var names []string
	for _, s := range candidates[:max(0, min(len(candidates), limit))] {
		names = append(names, s.name)
	}
	return names
}

// ResizeTarget returns the template that a Machine should have without being replaced, or an empty
// string if it has to be replaced or removed.
func (p Plan) ResizeTarget(m *v1alpha1.Machine, outdated Outdated) string {
	g, ok := p.groupOf(m)
	switch {
	case !ok || IsLeaving(m) || IsMarked(m) && !m.Spec.Protected || outdated.Replaced[m.Name] != "":
		return ""
	case outdated.InPlace[m.Name] != "":
		return g.Properties.Template
	default:
		return m.Spec.Template
	}
}

// RenewResize brings a resize to the present spec, whose generation is given. A node that is still
// being drained gets the present target. A failed resize begins again with it after each change of
// the spec, without another drain if its machine was restarted. A restart goes on. node is nil if the
// workload API has not returned it.
func RenewResize(r *v1alpha1.MachineResize, target string, node *Node, generation int64, now metav1.Time) {
	switch {
	case r.Step == v1alpha1.ResizeRestarting:
		return
	case r.Step == v1alpha1.ResizeFailed && r.Generation != generation:
		r.Step, r.Since, r.Message = v1alpha1.ResizeRestarting, now, ""
		if r.BootID == "" {
			r.Step = v1alpha1.ResizeDraining
		}
		if r.BootID != "" && target != "" && target != r.To && node != nil {
			r.BootID = node.BootID // the machine restarts once more
		}
		r.To = cmp.Or(target, r.To)
	case r.Step == v1alpha1.ResizeDraining:
		r.To = cmp.Or(target, r.To)
	}
	r.Generation = generation
}

// ResizeStep is what is done next for a machine that is resized in place.
type ResizeStep string

// Steps of a resize.
const (
	ResizeWait    ResizeStep = "wait"
	ResizeDrain   ResizeStep = "drain"
	ResizeRestart ResizeStep = "restart"
	ResizeFinish  ResizeStep = "finish"
	ResizeCancel  ResizeStep = "cancel"
	ResizeFail    ResizeStep = "fail"
)

// NextResizeStep decides the next step of a machine that is resized in place. target is the one of
// ResizeTarget, and node is nil if the workload API has not returned it:
//
//	the machine has restarted with the size, and its node is Ready   finish
//	draining, or failed, and the machine has to be replaced          cancel
//	draining, and the machine has the target already                 cancel
//	draining                                                         drain
//	failed                                                           wait
//	restarting, and its spec has another template                    restart
//	restarting for longer than ResizeTimeout                         fail
//	otherwise                                                        wait
func NextResizeStep(r v1alpha1.MachineResize, m *v1alpha1.Machine, node *Node, target string, now time.Time) ResizeStep {
	isDraining := r.Step == v1alpha1.ResizeDraining
	switch {
	case hasResized(r, m, node):
		return ResizeFinish
	case r.Step != v1alpha1.ResizeRestarting && target == "", isDraining && target == m.Spec.Template:
		return ResizeCancel
	case isDraining:
		return ResizeDrain
	case r.Step == v1alpha1.ResizeFailed:
		return ResizeWait
	case m.Spec.Template != r.To:
		return ResizeRestart
	case now.Sub(r.Since.Time) >= ResizeTimeout:
		return ResizeFail
	default:
		return ResizeWait
	}
}

// hasResized reports whether a machine runs with the size that a resize has given it, its disks included, and its node is
// Ready since the restart.
func hasResized(r v1alpha1.MachineResize, m *v1alpha1.Machine, node *Node) bool {
	isApplied := m.Spec.Template == r.To && m.Status.RestartToken == m.Spec.RestartToken && IsRunning(m) &&
		meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady) &&
		!meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionStorageReady) &&
		!meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionRestartRequired)
	return r.BootID != "" && isApplied && node != nil && node.Ready && node.BootID != r.BootID
}

// ResizeRestartToken returns the value of spec.restartToken with which a Machine gets its new size. It is the
// same for each attempt of one restart.
func ResizeRestartToken(r v1alpha1.MachineResize) string {
	return "resize-" + r.Since.UTC().Format("20060102T150405Z")
}

// FailedResize returns the first machine whose resize has failed, or nil.
func FailedResize(resizes []v1alpha1.MachineResize) *v1alpha1.MachineResize {
	i := slices.IndexFunc(resizes, func(r v1alpha1.MachineResize) bool { return r.Step == v1alpha1.ResizeFailed })
	if i < 0 {
		return nil
	}
	return &resizes[i]
}

// DescribeResizes returns what happens to machines that are being resized.
func DescribeResizes(resizes []v1alpha1.MachineResize) string {
	what := map[v1alpha1.ResizeStep]string{
		v1alpha1.ResizeDraining: "is drained", v1alpha1.ResizeRestarting: "restarts", v1alpha1.ResizeFailed: "has failed",
	}
	var parts []string
	for _, r := range resizes {
		part := fmt.Sprintf("%s %s to get template %s instead of %s", r.Name, what[r.Step], r.To, r.From)
		if r.Message != "" {
			part += " (" + r.Message + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

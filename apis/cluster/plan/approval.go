package plan

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// IsOlderThanPolicy reports whether a cluster had its machines before a policy applied to it, so that it is approved as it
// is until its spec changes.
func IsOlderThanPolicy(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Status.Approval == nil && kc.Status.ObservedGeneration == kc.Generation &&
		meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionMachinesCreated)
}

// ApprovalPolicyOf decides which approvals a cluster needs: the stricter of spec.approval.policy and of the annotation
// of its namespace. Without either it is empty, and the cluster needs none. The error is a usererror.Error.
func ApprovalPolicyOf(spec v1alpha1.KubernetesClusterSpec, ns *corev1.Namespace) (v1alpha1.ApprovalPolicy, error) {
	own := v1alpha1.ApprovalPolicy("")
	if spec.Approval != nil {
		own = spec.Approval.Policy
	}
	switch of := v1alpha1.ApprovalPolicy(ns.Annotations[v1alpha1.AnnotationApproval]); of {
	case "", v1alpha1.ApprovalCreation, v1alpha1.ApprovalGrowth:
		if of == v1alpha1.ApprovalGrowth || own == "" {
			return of, nil
		}
		return own, nil
	default:
		return "", usererror.Error{Reason: "ApprovalPolicyUnknown", Message: fmt.Sprintf("the annotation %s of namespace %s is %q: write %s or %s",
			v1alpha1.AnnotationApproval, ns.Name, of, v1alpha1.ApprovalCreation, v1alpha1.ApprovalGrowth)}
	}
}

// ApprovalOfPresent returns the approval of the machines that a cluster had before a policy applied to it. WithTemplates
// adds their templates.
func ApprovalOfPresent(s v1alpha1.KubernetesClusterStatus) *v1alpha1.ApprovalStatus {
	return &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalApproved, Generation: s.ObservedGeneration, Approved: presentPools(s)}
}

// NextApproval decides the approval of a spec, from the approval before:
//
//	none was requested                                request
//	the spec fits into what was approved              approved
//	only creation needs approval, and has it          approved, as the spec is now
//	it has grown beyond what was approved, requested  request again
//	its work order is another one, and not approved   request again
//	it is what was requested                          unchanged
func NextApproval(a *v1alpha1.ApprovalStatus, policy v1alpha1.ApprovalPolicy, generation int64, workorder string, wanted []v1alpha1.ApprovedPool) *v1alpha1.ApprovalStatus {
	ask := &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRequested, Generation: generation, Workorder: workorder, Requested: wanted}
	if a == nil {
		return ask
	}
	ask.Approved = a.Approved
	isCreationApproved := len(a.Approved) > 0 && policy == v1alpha1.ApprovalCreation
	switch {
	case isCreationApproved || len(a.Approved) > 0 && !hasGrown(a.Approved, wanted):
		if a.State != v1alpha1.ApprovalApproved {
			a = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalApproved, Generation: generation, Workorder: a.Workorder, Approved: a.Approved}
		}
		if isCreationApproved {
			// Machines that needed no approval stay, also when the spec becomes invalid or the policy stricter.
			a = a.DeepCopy()
			a.Approved = wanted
		}
		return a
	case a.State == v1alpha1.ApprovalApproved, a.Workorder != workorder, !slices.Equal(a.Requested, wanted):
		return ask
	default:
		return a
	}
}

// WantedPools returns the machines that a topology asks for, by pool.
func WantedPools(t v1alpha1.ClusterTopology) []v1alpha1.ApprovedPool {
	pools := []v1alpha1.ApprovedPool{{Name: v1alpha1.ControlPlanePool, Replicas: t.ControlPlane.Replicas, Template: cmp.Or(t.ControlPlane.Template, v1alpha1.DefaultMachineTemplate(v1alpha1.RoleControlPlane))}}
	for _, p := range t.Workers {
		pools = append(pools, v1alpha1.ApprovedPool{Name: p.Name, Replicas: p.Replicas, Template: cmp.Or(p.Template, v1alpha1.DefaultMachineTemplate(v1alpha1.RoleWorker))})
	}
	return pools
}

// WithTemplates returns an approval in which approved pools without a template have that of the last valid spec, because
// every template would fit an empty one.
func WithTemplates(a *v1alpha1.ApprovalStatus, last *v1alpha1.AcceptedSpec) *v1alpha1.ApprovalStatus {
	if a == nil || last == nil {
		return a
	}
	a = a.DeepCopy()
	had := WantedPools(last.Topology)
	for i := range a.Approved {
		p := &a.Approved[i]
		if at := slices.IndexFunc(had, func(h v1alpha1.ApprovedPool) bool { return h.Name == p.Name }); at >= 0 && p.Template == "" {
			p.Template = had[at].Template
		}
	}
	return a
}

// presentPools returns the machines that a cluster has, by pool, without their templates.
func presentPools(s v1alpha1.KubernetesClusterStatus) []v1alpha1.ApprovedPool {
	var planes int32
	for _, n := range s.Nodes {
		if n.Role == v1alpha1.RoleControlPlane {
			planes++
		}
	}
	pools := []v1alpha1.ApprovedPool{{Name: v1alpha1.ControlPlanePool, Replicas: planes}}
	for _, p := range s.Pools {
		pools = append(pools, v1alpha1.ApprovedPool{Name: p.Name, Replicas: p.Replicas})
	}
	return pools
}

// hasGrown reports whether a topology has more machines than were approved, another pool or
// another template.
func hasGrown(approved, wanted []v1alpha1.ApprovedPool) bool {
	return slices.ContainsFunc(wanted, func(w v1alpha1.ApprovedPool) bool {
		i := slices.IndexFunc(approved, func(a v1alpha1.ApprovedPool) bool { return a.Name == w.Name })
		return i < 0 || w.Replicas > approved[i].Replicas || (approved[i].Template != "" && w.Template != approved[i].Template)
	})
}

// KeptPools returns the approved pools of the last valid spec that a topology lacks, with their number of workers, while it has a
// pool that is not approved. That may be one of them under another name, so their workers stay until the new name is approved.
func KeptPools(last *v1alpha1.AcceptedSpec, t v1alpha1.ClusterTopology, approved []v1alpha1.ApprovedPool) []v1alpha1.WorkerPool {
	isApproved := func(p v1alpha1.WorkerPool) bool {
		return slices.ContainsFunc(approved, func(a v1alpha1.ApprovedPool) bool { return a.Name == p.Name })
	}
	isNew := func(p v1alpha1.WorkerPool) bool { return !isApproved(p) }
	if last == nil || !slices.ContainsFunc(t.Workers, isNew) {
		return nil
	}
	return slices.DeleteFunc(EffectiveTopology(last.Topology).Workers, func(p v1alpha1.WorkerPool) bool {
		return isNew(p) || slices.ContainsFunc(t.Workers, func(w v1alpha1.WorkerPool) bool { return w.Name == p.Name })
	})
}

// LimitToApproved returns a copy of the cluster with at most the approved machines.
func LimitToApproved(kc *v1alpha1.KubernetesCluster, approved []v1alpha1.ApprovedPool) *v1alpha1.KubernetesCluster {
	kc = kc.DeepCopy()
	kc.Spec.Topology = EffectiveTopology(kc.Spec.Topology)
	t := &kc.Spec.Topology
	limit := func(name string, replicas *int32, template *string) bool {
		i := slices.IndexFunc(approved, func(a v1alpha1.ApprovedPool) bool { return a.Name == name })
		if i < 0 {
			return false
		}
		*replicas = min(*replicas, approved[i].Replicas)
		if approved[i].Template != "" {
			*template = approved[i].Template
		}
		return true
	}
	limit(v1alpha1.ControlPlanePool, &t.ControlPlane.Replicas, &t.ControlPlane.Template)
	var pools []v1alpha1.WorkerPool
	for _, p := range t.Workers {
		if limit(p.Name, &p.Replicas, &p.Template) {
			pools = append(pools, p)
		}
	}
	t.Workers = pools
	return kc
}

// DescribePools returns the number of machines that an approval requests, for a message.
func DescribePools(a *v1alpha1.ApprovalStatus) string {
	planes, workers := CountMachines(a.Requested)
	text := Plural(int(planes), "control plane") + " and " + Plural(int(workers), "worker")
	if a.Workorder != "" {
		text += " by work order " + a.Workorder
	}
	return text
}

// CountMachines returns the number of control planes and workers in pools.
func CountMachines(pools []v1alpha1.ApprovedPool) (controlPlanes, workers int32) {
	for _, p := range pools {
		if p.Name == v1alpha1.ControlPlanePool {
			controlPlanes += p.Replicas
		} else {
			workers += p.Replicas
		}
	}
	return controlPlanes, workers
}

// Decision is the data of an event by which a ticketing system decides about an approval.
type Decision struct {
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	By         string `json:"by"`
	Comment    string `json:"comment"`
	Reason     string `json:"reason"`
	// Approved is known from the type of the event, never from its data.
	Approved bool `json:"-"`
}

// ApplyDecision writes a decision into an approval, and reports whether it has. The first
// decision about the requested generation counts, and every other one is ignored.
func ApplyDecision(a *v1alpha1.ApprovalStatus, d Decision, at metav1.Time) bool {
	if a == nil || a.State != v1alpha1.ApprovalRequested || a.Generation != d.Generation {
		return false
	}
	a.By, a.Time, a.Comment = d.By, &at, d.Comment
	if !d.Approved {
		a.State, a.Comment = v1alpha1.ApprovalRejected, d.Reason
		return true
	}
	a.State, a.Approved = v1alpha1.ApprovalApproved, a.Requested
	return true
}

// RequestedGeneration returns the generation whose approval is requested, or 0.
func RequestedGeneration(a *v1alpha1.ApprovalStatus) int64 {
	if a == nil || a.State != v1alpha1.ApprovalRequested {
		return 0
	}
	return a.Generation
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// checkApproval finds out whether the cluster that the spec describes may be made. It
// returns waits or a fault where it may not, or not yet. What has been approved
// before stands meanwhile.
func (f *function) checkApproval(ctx context.Context, c *cluster) error {
	policy, err := f.approvalPolicy(ctx, c)
	if err != nil {
		return err
	}
	if policy == "" {
		c.Status.Approval = nil
		return nil
	}
	c.Status.Approval = nextApproval(c.Status.Approval, policy, c.Generation, c.Spec.Data.Workorder, wantedPools(effective(c.Spec.Topology)))
	a := c.Status.Approval
	switch a.State {
	case v1alpha1.ApprovalRequested:
		return waits{reason: "PendingApproval", message: fmt.Sprintf("waits for approval of %s, asked for by an event of type %s for generation %d", describePools(a), events.TypeWorkorderRequested, a.Generation)}
	case v1alpha1.ApprovalRejected:
		return fault{"ApprovalRejected", fmt.Sprintf("%s has rejected %s: %s; change the topology to ask again", a.By, describePools(a), a.Comment)}
	default:
		return nil
	}
}

// approvalPolicy is the stricter of what the cluster and its namespace ask for. A
// cluster that was made before somebody asked has been approved as it is.
func (f *function) approvalPolicy(ctx context.Context, c *cluster) (v1alpha1.ApprovalPolicy, error) {
	policy := v1alpha1.ApprovalPolicy("")
	if c.Spec.Approval != nil {
		policy = c.Spec.Approval.Policy
	}
	if a := c.Status.Approval; a == nil && c.Status.ObservedGeneration == c.Generation && isTrue(c.KubernetesCluster, v1alpha1.ConditionMachinesCreated) {
		return "", nil
	}
	ns := &corev1.Namespace{}
	if err := f.kube.Get(ctx, "", c.Namespace, ns); err != nil {
		return "", err
	}
	of := v1alpha1.ApprovalPolicy(ns.Annotations[v1alpha1.AnnotationApproval])
	switch of {
	case "", v1alpha1.ApprovalCreation, v1alpha1.ApprovalGrowth:
	default:
		return "", fault{"ApprovalPolicyUnknown", fmt.Sprintf("the annotation %s of namespace %s is %q: write %s or %s", v1alpha1.AnnotationApproval, c.Namespace, of, v1alpha1.ApprovalCreation, v1alpha1.ApprovalGrowth)}
	}
	if of == v1alpha1.ApprovalGrowth || policy == "" {
		policy = of
	}
	if policy != "" && c.Status.Approval == nil && c.Status.Version != "" {
		c.Status.Approval = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalApproved, Generation: c.Status.ObservedGeneration, Approved: presentPools(c.Status)}
	}
	return policy, nil
}

// nextApproval decides what has become of an approval:
//
//	nothing was asked yet                           ask
//	the spec fits into what was approved            approved
//	it has grown, and only the creation matters     approved
//	it has grown beyond what was approved or asked  ask again
//	it is what was asked for                        as it was
func nextApproval(a *v1alpha1.ApprovalStatus, policy v1alpha1.ApprovalPolicy, generation int64, workorder string, wanted []v1alpha1.ApprovedPool) *v1alpha1.ApprovalStatus {
	ask := &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRequested, Generation: generation, Workorder: workorder, Requested: wanted}
	if a == nil {
		return ask
	}
	ask.Approved = a.Approved
	switch {
	case len(a.Approved) > 0 && (policy == v1alpha1.ApprovalCreation || !grows(a.Approved, wanted)):
		if a.State != v1alpha1.ApprovalApproved {
			a = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalApproved, Generation: generation, Workorder: a.Workorder, Approved: a.Approved}
		}
		return a
	case a.State == v1alpha1.ApprovalApproved, !slices.Equal(a.Requested, wanted):
		return ask
	default:
		return a
	}
}

// wantedPools are the machines that a topology asks for, by pool.
func wantedPools(t v1alpha1.ClusterTopology) []v1alpha1.ApprovedPool {
	named := func(template, otherwise string) string {
		if template == "" {
			return otherwise
		}
		return template
	}
	pools := []v1alpha1.ApprovedPool{{Name: controlPlanePool, Replicas: t.ControlPlane.Replicas, Template: named(t.ControlPlane.Template, controlPlaneTemplate)}}
	for _, p := range t.Workers {
		pools = append(pools, v1alpha1.ApprovedPool{Name: p.Name, Replicas: p.Replicas, Template: named(p.Template, workerTemplate)})
	}
	return pools
}

// presentPools are the machines that a cluster has. Of which size they are is not
// asked, so that any fits.
func presentPools(s v1alpha1.KubernetesClusterStatus) []v1alpha1.ApprovedPool {
	var planes int32
	for _, n := range s.Nodes {
		if n.Role == v1alpha1.RoleControlPlane {
			planes++
		}
	}
	pools := []v1alpha1.ApprovedPool{{Name: controlPlanePool, Replicas: planes}}
	for _, p := range s.Pools {
		pools = append(pools, v1alpha1.ApprovedPool{Name: p.Name, Replicas: p.Replicas})
	}
	return pools
}

// grows tells whether a topology has more than what was approved: more machines,
// another pool, or another template.
func grows(approved, wanted []v1alpha1.ApprovedPool) bool {
	return slices.ContainsFunc(wanted, func(w v1alpha1.ApprovedPool) bool {
		i := slices.IndexFunc(approved, func(a v1alpha1.ApprovedPool) bool { return a.Name == w.Name })
		return i < 0 || w.Replicas > approved[i].Replicas || (approved[i].Template != "" && w.Template != approved[i].Template)
	})
}

// within is a cluster with no more machines than were approved.
func within(kc *v1alpha1.KubernetesCluster, approved []v1alpha1.ApprovedPool) *v1alpha1.KubernetesCluster {
	kc = kc.DeepCopy()
	kc.Spec.Topology = effective(kc.Spec.Topology)
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
	limit(controlPlanePool, &t.ControlPlane.Replicas, &t.ControlPlane.Template)
	var pools []v1alpha1.WorkerPool
	for _, p := range t.Workers {
		if limit(p.Name, &p.Replicas, &p.Template) {
			pools = append(pools, p)
		}
	}
	t.Workers = pools
	return kc
}

func describePools(a *v1alpha1.ApprovalStatus) string {
	planes, workers := machinesIn(a.Requested)
	text := count(int(planes), "control plane") + " and " + count(int(workers), "worker")
	if a.Workorder != "" {
		text += " by work order " + a.Workorder
	}
	return text
}

func machinesIn(pools []v1alpha1.ApprovedPool) (controlPlanes, workers int32) {
	for _, p := range pools {
		if p.Name == controlPlanePool {
			controlPlanes += p.Replicas
		} else {
			workers += p.Replicas
		}
	}
	return controlPlanes, workers
}

// request is the event that asks the ticketing system. Asking again for the same
// generation is the same event.
func request(kc *v1alpha1.KubernetesCluster) (*event.Event, error) {
	a := kc.Status.Approval
	planes, workers := machinesIn(a.Requested)
	e := event.New()
	e.SetType(events.TypeWorkorderRequested)
	e.SetSource("/functions/" + functionName)
	e.SetID(fmt.Sprintf("%s.workorder.%d", kc.UID, a.Generation))
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "KubernetesCluster", Namespace: kc.Namespace, Name: kc.Name}
	ref.Set(&e, string(kc.UID))
	err := e.SetData(event.ApplicationJSON, events.WorkorderRequested{
		Object:    events.Object{UID: string(kc.UID), Namespace: kc.Namespace, Name: kc.Name},
		Workorder: a.Workorder, Generation: a.Generation, ClusterID: clusterID(kc),
		Environment: kc.Spec.Data.Environment, Project: kc.Spec.Data.Project, Workspace: kc.Spec.Data.Workspace,
		Version: string(kc.Spec.Topology.Version), ControlPlanes: planes, Workers: workers,
	})
	if err != nil {
		return nil, fmt.Errorf("write event %s: %w", e.ID(), err)
	}
	return &e, nil
}

// decision is what a ticketing system says.
type decision struct {
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	By         string `json:"by"`
	Comment    string `json:"comment"`
	Reason     string `json:"reason"`
	approved   bool
}

// decided writes a ticketing system's decision into the status of its cluster. One
// about what is no longer asked changes nothing.
func (f *function) decided(ctx context.Context, in event.Event) error {
	d := decision{approved: in.Type() == events.TypeWorkorderApproved}
	if err := json.Unmarshal(in.Data(), &d); err != nil || d.UID == "" || d.Generation == 0 || d.By == "" {
		return events.Permanent(fmt.Errorf("read event %s: its data has to be that of %s, with uid, generation and by", in.ID(), in.Type()))
	}
	d.By, d.Comment, d.Reason = kube.Text(d.By, maxBy), kube.Text(d.Comment, maxComment), kube.Text(d.Reason, maxComment)
	list := &v1alpha1.KubernetesClusterList{}
	if err := f.kube.List(ctx, "", "", list); err != nil {
		return err
	}
	i := slices.IndexFunc(list.Items, func(kc v1alpha1.KubernetesCluster) bool { return string(kc.UID) == d.UID })
	if i < 0 {
		events.Report(ctx, "", "Dropped a decision about a cluster that does not exist")
		return nil
	}
	kc := &list.Items[i]
	before := kc.DeepCopy()
	if !decide(kc.Status.Approval, d, metav1.NewTime(f.now())) {
		events.Report(ctx, string(kc.Status.Phase), "Dropped a decision that is not asked for any more")
		return nil
	}
	if _, err := f.kube.PatchStatus(ctx, before, kc); err != nil {
		return err
	}
	f.kube.Tell(ctx, kc, !d.approved, string(kc.Status.Approval.State), fmt.Sprintf("%s has decided about generation %d: %s", kc.Status.Approval.By, d.Generation, kc.Status.Approval.Comment))
	return nil
}

// Bounds of what a decision says, which are those of its schema.
const (
	maxBy      = 253
	maxComment = 1024
)

// decide puts a decision into an approval, if that waits for it: the first decision
// stands, and one about another generation than was asked about says nothing.
func decide(a *v1alpha1.ApprovalStatus, d decision, at metav1.Time) bool {
	if a == nil || a.State != v1alpha1.ApprovalRequested || a.Generation != d.Generation {
		return false
	}
	a.By, a.Time, a.Comment = d.By, &at, d.Comment
	if !d.approved {
		a.State, a.Comment = v1alpha1.ApprovalRejected, d.Reason
		return true
	}
	a.State, a.Approved = v1alpha1.ApprovalApproved, a.Requested
	return true
}

// requestedBy is the generation that is being asked about, 0 for none.
func requestedBy(a *v1alpha1.ApprovalStatus) int64 {
	if a == nil || a.State != v1alpha1.ApprovalRequested {
		return 0
	}
	return a.Generation
}

// asks tells whether a delivery sends the request: the one that has written it down,
// and, since the event may be lost, resync's in the first minutes and then every
// hour.
func (f *function) asks(c *cluster, asked int64, thorough bool) bool {
	now := requestedBy(c.Status.Approval)
	if now == 0 || now != asked {
		return now != 0
	}
	since, _ := conditionSince(c.KubernetesCluster, v1alpha1.ConditionApproved, "PendingApproval")
	age := f.now().Sub(since)
	return thorough && (age < 5*time.Minute || age%time.Hour < time.Minute)
}

// wanted is the cluster as its last valid spec says, as far as it has been approved.
func (c *cluster) wanted() *v1alpha1.KubernetesCluster {
	if c.allowed != nil {
		return c.allowed
	}
	return c.KubernetesCluster
}

// advanceApproved is advance as far as the cluster has been approved. An invalid spec
// asks for no approval, and what has been approved before limits the last valid one.
func (f *function) advanceApproved(ctx context.Context, c *cluster) error {
	if err := f.acceptSpec(c); err != nil {
		return err
	}
	a := c.Status.Approval
	if _, invalid := c.faultOf(v1alpha1.ConditionTopologyValid); invalid {
		switch {
		case a != nil && len(a.Approved) == 0:
			return c.faults[0].fault
		case a != nil:
			c.allowed = within(c.allowed, a.Approved)
		}
		return f.advance(ctx, c)
	}
	c.held = f.checkApproval(ctx, c)
	if c.held != nil {
		a = c.Status.Approval
		known := errors.As(c.held, new(waits)) || errors.As(c.held, new(fault))
		if !known || a == nil || len(a.Approved) == 0 {
			return c.held
		}
		c.allowed = within(c.KubernetesCluster, a.Approved)
	}
	if err := f.advance(ctx, c); err != nil {
		return err
	}
	return c.held
}

func describeApproval(a *v1alpha1.ApprovalStatus, set func(condition string, ok bool, reason, message string)) {
	switch a.State {
	case v1alpha1.ApprovalApproved:
		by := "it was there before approval was asked for"
		if a.By != "" {
			by = "approved by " + a.By
		}
		set(v1alpha1.ConditionApproved, true, "Approved", by)
	case v1alpha1.ApprovalRejected:
		set(v1alpha1.ConditionApproved, false, "ApprovalRejected", "rejected by "+a.By+": "+a.Comment)
	default:
		set(v1alpha1.ConditionApproved, false, "PendingApproval", "generation "+strconv.FormatInt(a.Generation, 10)+" waits for a decision")
	}
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// rollOutAfter continues the rollouts that a change of a cluster concerns: those of the ClusterTemplate that it names
// and of the one that it has named. before is the cluster at the start of the delivery, nil if the
// cluster is being deleted. A change that no rollout depends on needs no request.
func (t *templateApplier) rollOutAfter(ctx context.Context, c *cluster, before *v1alpha1.KubernetesCluster) error {
	after := template.MemberOf(c.KubernetesCluster)
	var concerned []string
	if c.Spec.TemplateRef != nil {
		concerned = append(concerned, c.Spec.TemplateRef.Name)
	}
	if before != nil {
		old := template.MemberOf(before)
		if old.Template == after.Template && old.Revision == after.Revision && old.Done == after.Done && old.Stalled == after.Stalled {
			return nil
		}
		if old.Template != "" && !slices.Contains(concerned, old.Template) {
			concerned = append(concerned, old.Template)
		}
	}
	for _, name := range concerned {
		if err := t.rollOut(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// maxRolloutSteps bounds the steps of a delivery. Resync continues, because the ClusterTemplate is not Ready.
const maxRolloutSteps = 20

// rollOut continues the rollout of a ClusterTemplate and writes its status. A step that updates clusters which are
// Ready at once, because they have all fields in their own manifest, is followed by the next one.
func (t *templateApplier) rollOut(ctx context.Context, name string) error {
	tried := map[types.UID]bool{}
	for range maxRolloutSteps {
		isOver := false
		err := kube.OnConflict(func() (err error) {
			isOver, err = t.step(ctx, name, tried)
			return err
		})
		if err != nil || isOver {
			return err
		}
	}
	return nil
}

// step makes one step of a rollout. It records the clusters of the step in the status before it writes into their
// specs. The status is written only if the ClusterTemplate has not been written since it was read, so that of
// two deliveries one starts a cluster. A step that has crashed is repeated. tried has the clusters whose specs this
// delivery has written. It reports whether no further step follows.
func (t *templateApplier) step(ctx context.Context, name string, tried map[types.UID]bool) (isOver bool, err error) {
	ct := &v1alpha1.ClusterTemplate{}
	if err := t.kube.Get(ctx, "", name, ct); err != nil {
		if kube.NotFound(err) {
			return true, nil
		}
		return false, err
	}
	if v1alpha1.IsPaused(ct) {
		return true, nil
	}
	clusters, err := t.clustersOf(ctx, name)
	if err != nil {
		return false, err
	}
	if ct.DeletionTimestamp != nil {
		return true, t.releaseTemplate(ctx, ct, clusters)
	}
	before := ct.DeepCopy()
	if kube.AddFinalizer(ct, v1alpha1.FinalizerClusterTemplate) {
		if _, err := t.kube.Patch(ctx, before, ct); err != nil {
			return false, err
		}
		before = ct.DeepCopy()
	}
	members := make([]template.Member, len(clusters))
	for i := range clusters {
		members[i] = template.MemberOf(&clusters[i])
	}
	decision := template.Decide(ct, members, t.now())
	if err := t.writeStatus(ctx, before, ct, decision, clusters); err != nil {
		return false, err
	}
	next := slices.DeleteFunc(decision.Apply, func(m template.Member) bool { return tried[m.UID] })
	for _, m := range next {
		tried[m.UID] = true
	}
	return t.update(ctx, ct, next)
}

// clustersOf returns the clusters of all namespaces that name a ClusterTemplate.
func (t *templateApplier) clustersOf(ctx context.Context, name string) ([]v1alpha1.KubernetesCluster, error) {
	list := &v1alpha1.KubernetesClusterList{}
	err := t.kube.ListPage(ctx, "", metav1.ListOptions{FieldSelector: "spec.templateRef.name=" + name}, list)
	return list.Items, err
}

// writeStatus writes a decision into the status.
func (t *templateApplier) writeStatus(ctx context.Context, before, ct *v1alpha1.ClusterTemplate, d template.Decision, clusters []v1alpha1.KubernetesCluster) error {
	conditions := ct.Status.Conditions
	ct.Status = d.Status
	ct.Status.Conditions = conditions
	ct.Status.Overrides = overridesOf(ct, clusters)
	outcome := reconcile.SetReady(&ct.Status.Conditions, ct.Generation, d.Ready, d.Reason, d.Message)
	_, err := reconcile.PatchStatus(ctx, t.kube, before, ct, d.Reason, outcome)
	return err
}

// maxOverrides bounds the clusters and the fields that a status lists.
const maxOverrides = 20

// overridesOf returns the fields of a ClusterTemplate that clusters have in their own manifests.
func overridesOf(ct *v1alpha1.ClusterTemplate, clusters []v1alpha1.KubernetesCluster) (all []v1alpha1.TemplateOverride) {
	for i := range clusters {
		kc := &clusters[i]
		if fields := template.Overrides(kc, template.ContentFor(kc, ct)); len(fields) > 0 {
			all = append(all, v1alpha1.TemplateOverride{Namespace: kc.Namespace, Name: kc.Name, Fields: fields[:min(len(fields), maxOverrides)]})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.TemplateOverride) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all[:min(len(all), maxOverrides)]
}

// update writes the fields of a ClusterTemplate into clusters that its status has recorded. If the API server rejects
// a cluster with them, the status says why, and the rollout stops there. It reports whether no further step follows.
func (t *templateApplier) update(ctx context.Context, ct *v1alpha1.ClusterTemplate, members []template.Member) (isOver bool, err error) {
	before, isOver := ct.DeepCopy(), true
	for _, m := range members {
		kc := &v1alpha1.KubernetesCluster{}
		err := t.kube.Get(ctx, m.Namespace, m.Name, kc)
		if kube.NotFound(err) || err == nil && kc.UID != m.UID {
			isOver = false
			continue
		}
		if err != nil {
			return false, err
		}
		err = t.apply(ctx, kc, template.ContentFor(kc, ct))
		problem, rejected := reconcile.AsUserError(err)
		if err != nil && !rejected {
			return false, err
		}
		i := slices.IndexFunc(ct.Status.Updating, func(u v1alpha1.TemplateUpdate) bool { return u.UID == m.UID })
		ct.Status.Updating[i].Message = problem.Message
		isOver = isOver && !rejected && !template.MemberOf(kc).Done
	}
	if _, err := t.kube.PatchStatus(ctx, before, ct); err != nil {
		return false, err
	}
	return isOver, nil
}

// releaseTemplate removes the finalizer of a ClusterTemplate that is being deleted once no cluster names it. Until then
// its condition Ready names the clusters.
func (t *templateApplier) releaseTemplate(ctx context.Context, ct *v1alpha1.ClusterTemplate, clusters []v1alpha1.KubernetesCluster) error {
	before := ct.DeepCopy()
	if len(clusters) == 0 {
		kube.RemoveFinalizer(ct, v1alpha1.FinalizerClusterTemplate)
		if _, err := t.kube.Patch(ctx, before, ct); err != nil && !kube.NotFound(err) {
			return err
		}
		events.Report(ctx, "Deleting", "Removed ClusterTemplate")
		return nil
	}
	const most = 5
	var users []string
	for _, kc := range clusters[:min(most, len(clusters))] {
		users = append(users, kc.Namespace+"/"+kc.Name)
	}
	ct.Status.ObservedGeneration, ct.Status.Clusters = ct.Generation, int32(len(clusters))
	message := fmt.Sprintf("%d clusters name the template, for example KubernetesCluster %s: remove spec.templateRef of each, and they keep their fields, or name another ClusterTemplate",
		len(clusters), strings.Join(users, ", "))
	outcome := reconcile.SetReady(&ct.Status.Conditions, ct.Generation, false, template.ReasonInUse, message)
	outcome.Warning = true
	_, err := reconcile.PatchStatus(ctx, t.kube, before, ct, "Deleting", outcome)
	return err
}

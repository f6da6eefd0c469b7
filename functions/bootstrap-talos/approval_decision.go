package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// recordDecision writes the decision of a ticketing system into the status of its cluster. A
// decision about another generation is dropped, and one whose subject is another object is a permanent error.
func (ap *approvalRequester) recordDecision(ctx context.Context, in event.Event) error {
	d := plan.Decision{Approved: in.Type() == events.TypeWorkorderApproved}
	if err := json.Unmarshal(in.Data(), &d); err != nil || d.UID == "" || d.Generation == 0 || d.By == "" {
		return events.Permanent(fmt.Errorf("read event %s: its data has to be that of %s, with uid, generation and by", in.ID(), in.Type()))
	}
	d.By, d.Comment, d.Reason = kube.Text(d.By, maxBy), kube.Text(d.Comment, maxComment), kube.Text(d.Reason, maxComment)
	list := &v1alpha1.KubernetesClusterList{}
	if err := ap.kube.List(ctx, "", "", list); err != nil {
		return err
	}
	i := slices.IndexFunc(list.Items, func(kc v1alpha1.KubernetesCluster) bool { return string(kc.UID) == d.UID })
	if i < 0 {
		events.Report(ctx, "", "Dropped a decision about a cluster that does not exist")
		return nil
	}
	kc := &list.Items[i]
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "KubernetesCluster", Namespace: kc.Namespace, Name: kc.Name}
	if err := ref.CheckSubject(in); err != nil {
		return err
	}
	before := kc.DeepCopy()
	if !plan.ApplyDecision(kc.Status.Approval, d, metav1.NewTime(ap.now())) {
		events.Report(ctx, string(kc.Status.Phase), "Dropped a decision that is not requested any more")
		return nil
	}
	if _, err := ap.kube.PatchStatus(ctx, before, kc); err != nil {
		return err
	}
	ap.kube.RecordEvent(ctx, kc, !d.Approved, string(kc.Status.Approval.State), fmt.Sprintf("%s has decided about generation %d: %s", kc.Status.Approval.By, d.Generation, kc.Status.Approval.Comment))
	return nil
}

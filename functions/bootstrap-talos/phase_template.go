package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// templateApplier writes the fields of ClusterTemplates into the specs of clusters, and rolls changes out.
type templateApplier struct {
	kube *kube.Client
	now  func() time.Time
}

// fillFromTemplate writes into the spec what the cluster's ClusterTemplate gives to it and its manifest lacks, before
// anything reads the spec. A UserError goes into the report.
func (t *templateApplier) fillFromTemplate(ctx context.Context, c *cluster) error {
	var err error
	switch template.NextStep(c.KubernetesCluster) {
	case template.Keep:
		return nil
	case template.Release:
		err = t.release(ctx, c.KubernetesCluster)
	case template.Complete:
		applied, _ := template.Applied(c.KubernetesCluster)
		err = t.apply(ctx, c.KubernetesCluster, applied)
	case template.Adopt:
		err = t.adopt(ctx, c.KubernetesCluster)
	}
	if _, refused := reconcile.AsUserError(err); refused {
		c.report.template, err = err, nil
	}
	if err == nil {
		c.before = c.KubernetesCluster.DeepCopy()
	}
	return err
}

// adopt gives a cluster the fields of the ClusterTemplate that it names.
func (t *templateApplier) adopt(ctx context.Context, kc *v1alpha1.KubernetesCluster) error {
	name, found := kc.Spec.TemplateRef.Name, &v1alpha1.ClusterTemplate{}
	err := t.kube.Get(ctx, "", name, found)
	if kube.NotFound(err) {
		return reconcile.UserError{Reason: template.ReasonMissing, Message: fmt.Sprintf(
			"ClusterTemplate %s does not exist: create it, or write another name into spec.templateRef (kubectl get clustertemplates)", name)}
	}
	if err != nil {
		return err
	}
	return t.apply(ctx, kc, template.ContentFor(kc, found))
}

// apply gives a cluster the fields of a content. It returns a UserError if the API server rejects the cluster with
// them.
func (t *templateApplier) apply(ctx context.Context, kc *v1alpha1.KubernetesCluster, content template.Content) error {
	fields, err := template.ApplyConfiguration(kc, content)
	if err != nil {
		return err
	}
	err = t.kube.Apply(ctx, kc, v1alpha1.FieldManagerTemplate, fields)
	message, rejected := kube.RejectionMessage(err)
	isGiven := func(field string) bool { return template.IsGiven(fields, field) }
	switch given := kube.RejectedFields(err); {
	case rejected && len(given) > 0 && !slices.ContainsFunc(given, func(field string) bool { return !isGiven(field) }):
		return reconcile.UserError{Reason: template.ReasonInvalid, Message: fmt.Sprintf(
			"the API server rejects fields of ClusterTemplate %s, which the cluster does not have itself: %s. The platform team corrects the ClusterTemplate. To continue before that, write the field into the cluster",
			content.Name, message)}
	case rejected:
		return reconcile.UserError{Reason: template.ReasonRejected, Message: fmt.Sprintf(
			"the API server rejects the cluster with the fields of ClusterTemplate %s: %s. Change the field in the cluster, or ask the platform team to change the ClusterTemplate",
			content.Name, message)}
	}
	return err
}

// release makes the fields of a ClusterTemplate the cluster's own, after templateRef was removed. They keep their
// values.
func (t *templateApplier) release(ctx context.Context, kc *v1alpha1.KubernetesCluster) error {
	managers, err := json.Marshal(template.OtherManagers(kc))
	if err != nil {
		return fmt.Errorf("write managedFields of KubernetesCluster %s/%s: %w", kc.Namespace, kc.Name, err)
	}
	return t.kube.Merge(ctx, kc, map[string]any{"metadata": map[string]any{
		"resourceVersion": kc.ResourceVersion, "managedFields": json.RawMessage(managers),
		"annotations": map[string]any{v1alpha1.AnnotationTemplate: nil},
	}})
}

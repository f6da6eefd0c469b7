package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/addonsource"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// addonApplier reads and applies the add-ons of clusters.
type addonApplier struct {
	kube   *kube.Client
	status *statusWriter
	// hosts reads the manifests of add-ons by their URLs.
	hosts *addonsource.Hosts
}

// applyAll applies the add-ons of the spec whose manifests are new or have changed, before the nodes have to be
// Ready, because a network plug-in may be one of them. An add-on that is refused or waits stops neither the others nor
// the delivery: the status says why, and checkAddonsApplied has the event redelivered. A delivery tries a refused
// add-on once, and a cluster without add-ons costs nothing.
func (ap *addonApplier) applyAll(ctx context.Context, c *cluster) error {
	if len(c.Spec.Addons) == 0 {
		c.Status.Addons = nil
		meta.RemoveStatusCondition(&c.Status.Conditions, v1alpha1.ConditionAddonsApplied)
		return nil
	}
	if c.report.addonsDone == nil {
		c.report.addonsDone, c.observed.addons = map[string]bool{}, map[string]addons.Manifests{}
	}
	c.keepAddonStatuses()
	c.report.addonsWaiting = nil
	for i, a := range c.Spec.Addons {
		if c.report.addonsDone[a.Name] {
			continue
		}
		err := ap.apply(ctx, c, i)
		status := &c.Status.Addons[i]
		wait := reconcile.WaitError{}
		switch {
		case errors.As(err, &wait):
			status.Message = wait.Message
			if c.report.addonsWaiting == nil {
				c.report.addonsWaiting = wait
			}
			continue
		case c.report.noteUserError(v1alpha1.ConditionAddonsApplied, err):
			problem, _ := reconcile.AsUserError(err)
			status.Message = problem.Message
		case err != nil:
			return err
		}
		c.report.addonsDone[a.Name] = true
		c.observed.forgetObjects(a.Name)
	}
	c.report.addons = c.addonsReport()
	return nil
}

// keepAddonStatuses brings the entries of the status into the order of the spec. Those of add-ons that are not in
// the spec any more are removed, and new ones added.
func (c *cluster) keepAddonStatuses() {
	entries := make([]v1alpha1.AddonStatus, len(c.Spec.Addons))
	for i, a := range c.Spec.Addons {
		entries[i].Name = a.Name
		if at := slices.IndexFunc(c.Status.Addons, func(s v1alpha1.AddonStatus) bool { return s.Name == a.Name }); at >= 0 {
			entries[i] = c.Status.Addons[at]
		}
	}
	c.Status.Addons = entries
}

// addonsReport returns the condition AddonsApplied. A UserError of an add-on takes its place.
func (c *cluster) addonsReport() conditionReport {
	var wait reconcile.WaitError
	if errors.As(c.report.addonsWaiting, &wait) {
		return conditionReport{reason: wait.Reason, message: wait.Message}
	}
	message := plan.Plural(len(c.Spec.Addons), "add-on")
	if slices.ContainsFunc(c.Spec.Addons, func(a v1alpha1.ClusterAddon) bool { return a.ConfigMap != "" }) {
		message += "; their ConfigMaps " + readAgain
	}
	return conditionReport{current: true, reason: v1alpha1.ConditionAddonsApplied, message: message}
}

// apply applies the add-on with an index in the spec, and changes its entry in the status. Without a change of the manifests it only does so if a user has
// requested a reconcile. Other manifests than the last ones are applied after the status has lost the digest of those: if the delivery ends before
// it has applied all objects, and a user takes the change back, the former manifests are applied again.
func (ap *addonApplier) apply(ctx context.Context, c *cluster, i int) error {
	a, status, requested := c.Spec.Addons[i], &c.Status.Addons[i], kube.ReconcileRequested(c.KubernetesCluster)
	if !addons.NeedsRead(a, *status, c.full, requested) {
		return nil
	}
	m, err := ap.read(ctx, c, a)
	if err != nil {
		return err
	}
	if m.Digest == status.Digest && status.Source == addons.Source(a) && !requested {
		status.Message = ""
		return nil
	}
	isOther := status.Digest != "" && status.Digest != m.Digest
	status.Digest, status.Objects = "", 0
	if isOther {
		if err := ap.status.patch(ctx, c); err != nil {
			return err
		}
	}
	for _, o := range m.Objects {
		if err := c.connections.workload.Apply(ctx, o.Unstructured); err != nil {
			return c.observed.addonError(a, o, err)
		}
	}
	c.Status.Addons[i] = v1alpha1.AddonStatus{Name: a.Name, Source: addons.Source(a), Digest: m.Digest, Objects: int32(len(m.Objects))}
	return nil
}

// read returns the manifests of an add-on. A delivery reads them once.
func (ap *addonApplier) read(ctx context.Context, c *cluster, a v1alpha1.ClusterAddon) (addons.Manifests, error) {
	if m, read := c.observed.addons[a.Name]; read {
		return m, nil
	}
	var files map[string]string
	if a.URL != "" {
		var err error
		if files, err = ap.hosts.Read(ctx, a); err != nil {
			return addons.Manifests{}, err
		}
	} else {
		cm := &corev1.ConfigMap{}
		err := ap.kube.Get(ctx, c.Namespace, string(a.ConfigMap), cm)
		if err != nil && !kube.NotFound(err) {
			return addons.Manifests{}, err
		}
		if err := addons.CheckNames(a, err == nil); err != nil {
			return addons.Manifests{}, err
		}
		files = cm.Data
	}
	m, err := addons.Read(a, files)
	if err == nil {
		c.observed.addons[a.Name] = m
	}
	return m, err
}

// addonError returns what the error of an object means for its add-on:
//
//	a kind that an add-on defines            WaitError: the API server serves it in a moment
//	another kind                             UserError
//	an answer that another request repeats   UserError with the answer
//	any other answer, or none                WaitError
func (o *observed) addonError(a v1alpha1.ClusterAddon, object addons.Manifest, err error) error {
	var unknown workload.UnknownKindError
	var answer workload.StatusError
	switch {
	case errors.As(err, &unknown) && o.definesKind(unknown):
		return addonWait(a, fmt.Sprintf("the workload API to serve the kind of %s", object))
	case errors.As(err, &unknown):
		return addons.Problem(a.Name, addons.ReasonInvalid, fmt.Sprintf(
			"%s, %s: the workload API serves no %s of %s: correct kind and apiVersion, or apply its CustomResourceDefinition by an add-on before. The stack checks again every minute",
			addons.Source(a), object, unknown.Kind, unknown.GroupVersion()))
	case errors.As(err, &answer) && isRefusal(answer):
		return addons.Problem(a.Name, addons.ReasonRefused, fmt.Sprintf(
			"%s: the workload API refuses %s: %s. Correct the manifest, or the policy that refuses it. The stack checks again every minute", addons.Source(a), object, answer.Message))
	case errors.As(err, &answer) && answer.Message != "":
		return addonWait(a, fmt.Sprintf("the workload API to accept %s, which answers: %s", object, answer.Message))
	}
	return addonWait(a, fmt.Sprintf("the workload API to answer for %s", object))
}

// isRefusal reports whether another request gets the same answer. To a field of another type than that of the schema,
// the API server answers 500.
func isRefusal(answer workload.StatusError) bool {
	return (answer.Code < http.StatusInternalServerError && answer.Code != http.StatusTooManyRequests) ||
		strings.Contains(answer.Message, "failed to create typed patch object")
}

func addonWait(a v1alpha1.ClusterAddon, what string) error {
	return reconcile.WaitError{Reason: addons.ReasonWaiting, Message: "add-on " + a.Name + " waits for " + what, Requeue: true}
}

// forgetObjects frees the memory of an add-on that this delivery does not try again.
func (o *observed) forgetObjects(name string) {
	if m, read := o.addons[name]; read {
		m.Objects = nil
		o.addons[name] = m
	}
}

// definesKind reports whether an add-on of this delivery defines a kind.
func (o *observed) definesKind(kind workload.UnknownKindError) bool {
	for _, m := range o.addons {
		if slices.Contains(m.Kinds, kind.GroupKind()) {
			return true
		}
	}
	return false
}

// checkAddonsApplied returns the WaitError of the first add-on that waits. It is the last phase, so that an add-on
// keeps no node from its changes.
func checkAddonsApplied(_ context.Context, c *cluster) error { return c.report.addonsWaiting }

// explainMissingCNI adds to the wait for nodes that they are not Ready without a network plug-in, if Talos installs
// none.
func explainMissingCNI(c *cluster, err error) error {
	var wait reconcile.WaitError
	if !errors.As(err, &wait) || wait.Reason != "WaitingForNodes" || c.Spec.Networking == nil || c.Spec.Networking.CNI != v1alpha1.CNINone {
		return err
	}
	wait.Message += "; spec.networking.cni is none, so nodes are Ready once a network plug-in runs on them: "
	if len(c.Spec.Addons) == 0 {
		wait.Message += "add one to spec.addons, or install it with the kubeconfig in Secret " + secretName(c.KubernetesCluster, kubeconfigSecret)
	} else {
		wait.Message += "check the pods of the add-on that has it"
	}
	return wait
}

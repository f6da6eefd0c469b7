package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/stand/feed"
)

// createClustersOf creates clusters that have the fields of a ClusterTemplate and are Ready.
func (s *env) createClustersOf(ct *v1alpha1.ClusterTemplate, names ...string) {
	s.Helper()
	for _, name := range names {
		s.writeManifest(name, fmt.Sprintf("{templateRef: {name: %s}}", ct.Name))
		if err := s.complete(name); err != nil {
			s.Fatal(err)
		}
		s.settle(name, true, "ClusterRunning")
	}
}

// settle writes the condition Ready of a cluster for its present spec, as a reconcile does.
func (s *env) settle(name string, ready bool, reason string) {
	s.Helper()
	kc := s.get(name)
	before := kc.DeepCopy()
	kc.Status.ObservedGeneration = kc.Generation
	reconcile.SetReady(&kc.Status.Conditions, kc.Generation, ready, reason, "the test says so")
	if _, err := s.kube.PatchStatus(s.Context(), before, kc); err != nil {
		s.Fatal(err)
	}
}

// versions returns the Kubernetes version of each cluster.
func (s *env) versions(names ...string) string {
	s.Helper()
	var all []string
	for _, name := range names {
		all = append(all, string(s.get(name).Spec.Topology.Version))
	}
	return strings.Join(all, " ")
}

func (s *env) templateReason(name string) string {
	s.Helper()
	ready := meta.FindStatusCondition(s.getTemplate(name).Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return ""
	}
	return ready.Reason
}

const twoPlanes = `{cluster: {topology: {version: "1.33", controlplane: {replicas: 1}}}, rollout: {maxConcurrent: 2}}`

// TestTemplateRollout delivers the events of five clusters at once, again and again. No more than two clusters
// are updated at the same time, and a cluster that is Stalled stops the rollout.
func TestTemplateRollout(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents, noResync: true})
	ct := s.template("standard", twoPlanes)
	names := []string{"a", "b", "c", "d", "e"}
	s.createClustersOf(ct, names...)
	rollOut := func(ctx context.Context) error { return s.function.templates.rollOut(ctx, ct.Name) }
	s.rollOutAtOnce(rollOut)
	if got := s.templateReason(ct.Name); got != template.ReasonCurrent || s.versions(names...) != "1.33 1.33 1.33 1.33 1.33" {
		t.Fatalf("before the change: %s, %s", got, s.versions(names...))
	}
	s.changeTemplate(ct.Name, strings.Replace(twoPlanes, "1.33", "1.34", 1))
	s.rollOutAtOnce(rollOut)
	if got := s.versions(names...); got != "1.34 1.34 1.33 1.33 1.33" || s.templateReason(ct.Name) != template.ReasonRolling {
		t.Errorf("two clusters start: got %s", got)
	}
	s.settle("b", true, "ClusterRunning")
	s.rollOutAtOnce(rollOut)
	if got := s.versions(names...); got != "1.34 1.34 1.34 1.33 1.33" {
		t.Errorf("one is done, so that one starts: got %s", got)
	}
	s.settle("a", false, "UpgradeFailed")
	s.settle("c", true, "ClusterRunning")
	s.rollOutAtOnce(rollOut)
	if got := s.versions(names...); got != "1.34 1.34 1.34 1.33 1.33" || s.templateReason(ct.Name) != template.ReasonStopped {
		t.Errorf("a is Stalled, so that none starts: got %s, %s", got, s.templateReason(ct.Name))
	}
	s.settle("a", true, "ClusterRunning")
	s.rollOutAtOnce(rollOut)
	s.settle("d", true, "ClusterRunning")
	s.settle("e", true, "ClusterRunning")
	s.rollOutAtOnce(rollOut)
	status := s.getTemplate(ct.Name).Status
	if got := s.versions(names...); got != "1.34 1.34 1.34 1.34 1.34" || s.templateReason(ct.Name) != template.ReasonCurrent || status.CurrentClusters != 5 || len(status.Updating) != 0 {
		t.Errorf("the rollout is not over: %s, %+v", got, status)
	}
	version := s.getTemplate(ct.Name).ResourceVersion
	s.rollOutAtOnce(rollOut)
	if s.getTemplate(ct.Name).ResourceVersion != version {
		t.Error("a reconcile without a change writes")
	}
}

// rollOutAtOnce delivers three events of a ClusterTemplate at once, as often as the Broker would.
func (s *env) rollOutAtOnce(rollOut func(context.Context) error) {
	s.Helper()
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			feed.Until(s, "the event is delivered", func() (bool, string) {
				err := rollOut(s.Context())
				return err == nil, fmt.Sprint(err)
			})
		})
	}
	group.Wait()
}

// TestTemplateRolloutKilled kills each delivery at its first write, before or after the API server has handled it.
func TestTemplateRolloutKilled(t *testing.T) {
	t.Parallel()
	r := &reaper{}
	s := newEnv(t, envOptions{handle: dropEvents, noResync: true})
	ct := s.template("standard", strings.Replace(twoPlanes, "maxConcurrent: 2", "maxConcurrent: 1", 1))
	names := []string{"a", "b", "c"}
	s.createClustersOf(ct, names...)
	s.changeTemplate(ct.Name, `{cluster: {topology: {version: "1.34", controlplane: {replicas: 1}}}}`)
	config := s.server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return r.wrap(next) })
	r.statuses.Store(true)
	mortal := s.newFunction(s.clientOf(config, plan.FunctionName), s.function.now).templates
	feed.Until(t, "the rollout is over", func() (bool, string) {
		ctx, kill := context.WithCancelCause(t.Context())
		defer kill(nil)
		err := mortal.rollOut(context.WithValue(ctx, lifeKey{}, kill), ct.Name)
		started := 0
		for _, name := range names {
			kc := s.get(name)
			if m := template.MemberOf(kc); m.Revision == template.Revision(s.getTemplate(ct.Name).Spec.Cluster) && !m.Done {
				started++
			}
		}
		if started > 1 {
			t.Errorf("%d clusters are updated at the same time: %s", started, s.versions(names...))
		}
		for _, u := range s.getTemplate(ct.Name).Status.Updating {
			if s.get(u.Name).Spec.Topology.Version == "1.34" {
				s.settle(u.Name, true, "ClusterRunning")
			}
		}
		return s.templateReason(ct.Name) == template.ReasonCurrent && s.versions(names...) == "1.34 1.34 1.34", fmt.Sprintf("%v: %s", err, s.versions(names...))
	})
	if r.writes.Load() < 6 {
		t.Errorf("only %d writes could be killed", r.writes.Load())
	}
}

// TestTemplateDeletion deletes a ClusterTemplate that clusters name, and then follows its message.
func TestTemplateDeletion(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents, noResync: true})
	ct := s.template("standard", twoPlanes)
	s.createClustersOf(ct, "shop")
	s.deliverTemplate(ct.Name)
	if got := s.getTemplate(ct.Name).Finalizers; !slices.Contains(got, v1alpha1.FinalizerClusterTemplate) {
		t.Errorf("finalizers %v", got)
	}
	if err := s.kube.Delete(t.Context(), s.getTemplate(ct.Name)); err != nil {
		t.Fatal(err)
	}
	s.deliverTemplate(ct.Name)
	ready := meta.FindStatusCondition(s.getTemplate(ct.Name).Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Reason != template.ReasonInUse || !strings.Contains(ready.Message, s.namespace+"/shop") {
		t.Errorf("condition %+v", ready)
	}
	s.writeManifest("shop", `{topology: {version: "1.33", controlplane: {replicas: 1}}}`)
	if err := s.complete("shop"); err != nil {
		t.Error(err)
	}
	s.deliverTemplate(ct.Name)
	if err := s.kube.Get(t.Context(), "", ct.Name, ct); !kube.NotFound(err) {
		t.Errorf("no cluster names the template, but it exists: %v", err)
	}
}

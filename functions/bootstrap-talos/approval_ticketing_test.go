package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/sim/faults"
)

// mailbox receives the replies of the function. The reply of a delivery that fails is lost, because Knative reads the body of a response only
// if its status is 2xx.
type mailbox chan event.Event

func (m mailbox) listen(next events.Handler) events.Handler {
	return func(ctx context.Context, in event.Event) (*event.Event, error) {
		reply, err := next(ctx, in)
		if reply != nil && err == nil {
			select {
			case m <- *reply:
			default:
			}
		}
		return reply, err
	}
}

// answer returns a ticketing system's decision about a request.
func answer(t *testing.T, asked event.Event, kind string, more map[string]any) event.Event {
	t.Helper()
	var r events.WorkorderRequested
	if err := json.Unmarshal(asked.Data(), &r); err != nil {
		t.Fatal(err)
	}
	more["uid"], more["generation"], more["by"] = r.UID, r.Generation, "kari@example.com"
	e := event.New()
	e.SetID("decision")
	e.SetSource("/ticketing/corp")
	e.SetType(kind)
	if err := e.SetData(event.ApplicationJSON, more); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestApproval(t *testing.T) {
	t.Parallel()
	asked := make(mailbox, 100)
	s := newEnv(t, envOptions{handle: asked.listen})
	ns := &corev1.Namespace{}
	if err := s.kube.Get(t.Context(), "", s.namespace, ns); err != nil {
		t.Fatal(err)
	}
	if err := s.kube.Merge(t.Context(), ns, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationApproval: "growth"}}}); err != nil {
		t.Fatal(err)
	}
	decide := func(kind string, more map[string]any, first event.Event) {
		t.Helper()
		decision := answer(t, first, kind, more)
		s.server.Sign(t, &decision)
		if _, err := s.function.handle(t.Context(), decision); err != nil {
			t.Fatal(err)
		}
	}
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Data.Workorder = "WO-1234"
	s.create(kc)
	s.awaitReason("shop", "PendingApproval", "1 control plane and 1 worker", "WO-1234")
	first := <-asked
	if got := s.get("shop"); got.Status.Phase != v1alpha1.ClusterPendingApproval || len(s.machines("shop")) > 0 {
		t.Errorf("before any decision: phase %s, machines %v", got.Status.Phase, s.machines("shop"))
	}
	forged := answer(t, first, events.TypeWorkorderApproved, map[string]any{})
	if _, err := s.function.handle(t.Context(), forged); !events.IsPermanent(err) || !strings.Contains(err.Error(), "POST /api/v1/events") {
		t.Errorf("an approval without a signature: %v, want an error that says where to send it", err)
	}
	// The gateway accepts this subject from a key that is limited to the namespace other.
	misplaced := answer(t, first, events.TypeWorkorderApproved, map[string]any{})
	misplaced.SetSubject("/apis/vitistack.io/v1alpha1/namespaces/other/kubernetesclusters/shop")
	s.server.Sign(t, &misplaced)
	if _, err := s.function.handle(t.Context(), misplaced); !events.IsPermanent(err) || !strings.Contains(err.Error(), "its subject is") {
		t.Errorf("an approval with the subject of another namespace: %v, want a permanent error", err)
	}
	if got := s.get("shop"); got.Status.Approval.State != v1alpha1.ApprovalRequested {
		t.Fatalf("an unauthenticated sender can approve: %+v", got.Status.Approval)
	}
	decide(events.TypeWorkorderApproved, map[string]any{"comment": "within budget"}, first)
	got := s.awaitRunning("shop", "cp-0", "pool-0")
	if a := got.Status.Approval; a.By != "kari@example.com" || a.Time == nil || a.Comment != "within budget" {
		t.Errorf("want the decision with its user and time: %+v", a)
	}

	s.change("shop", replicas(1, map[string]int32{"pool": 3}))
	s.awaitReason("shop", "PendingApproval", "3 workers")
	growth := next(t, asked, got.Generation+1)
	decide(events.TypeWorkorderRejected, map[string]any{"reason": "the budget is used up"}, growth)
	s.awaitReason("shop", "ApprovalRejected", "kari@example.com", "the budget is used up")
	if diff := cmp.Diff([]string{"cp-0", "pool-0"}, s.machines("shop")); diff != "" {
		t.Errorf("machines above the approved number were created (-want +got):\n%s", diff)
	}
	decide(events.TypeWorkorderApproved, map[string]any{}, growth)
	s.awaitReason("shop", "ApprovalRejected")

	s.change("shop", replicas(1, map[string]int32{"pool": 2}))
	decide(events.TypeWorkorderApproved, map[string]any{}, next(t, asked, got.Generation+2))
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
	s.change("shop", replicas(1, map[string]int32{"pool": 1}))
	s.awaitRunning("shop", "cp-0", "pool-0")
}

// TestApprovalOfCreation has a cluster that only needs approval of its creation grow, and then makes its spec invalid and
// its policy stricter. Its machines stay.
func TestApprovalOfCreation(t *testing.T) {
	t.Parallel()
	asked := make(mailbox, 100)
	s := newEnv(t, envOptions{handle: asked.listen})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Approval = &v1alpha1.ApprovalOptions{Policy: v1alpha1.ApprovalCreation}
	s.create(kc)
	s.awaitReason("shop", "PendingApproval")
	decision := answer(t, <-asked, events.TypeWorkorderApproved, map[string]any{})
	s.server.Sign(t, &decision)
	if _, err := s.function.handle(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("shop", "cp-0", "pool-0")
	s.change("shop", replicas(1, map[string]int32{"pool": 2, "other": 1}))
	all := []string{"cp-0", "other-0", "pool-0", "pool-1"}
	s.awaitRunning("shop", all...)

	requireAll := func(after string) {
		t.Helper()
		if diff := cmp.Diff(all, s.machines("shop")); diff != "" {
			t.Errorf("%s: machines (-want +got):\n%s", after, diff)
		}
		for _, name := range all {
			if plan.IsLeaving(s.machine("shop-" + name)) {
				t.Errorf("%s: %s is removed", after, name)
			}
		}
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.33" })
	s.awaitReason("shop", "KubernetesDowngrade")
	requireAll("an invalid spec")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Version, kc.Spec.Approval.Policy = "1.34", v1alpha1.ApprovalGrowth
	})
	s.awaitRunning("shop", all...)
	requireAll("a stricter policy")
}

// TestApprovalOfARenamedPool renames a pool, and has the ticketing system reject and then approve that. Its workers stay until the
// new name is approved.
func TestApprovalOfARenamedPool(t *testing.T) {
	t.Parallel()
	asked := make(mailbox, 100)
	s := newEnv(t, envOptions{handle: asked.listen})
	decide := func(request event.Event, kind string) {
		t.Helper()
		decision := answer(t, request, kind, map[string]any{"reason": "no"})
		s.server.Sign(t, &decision)
		if _, err := s.function.handle(t.Context(), decision); err != nil {
			t.Fatal(err)
		}
	}
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Approval = &v1alpha1.ApprovalOptions{Policy: v1alpha1.ApprovalGrowth}
	s.create(kc)
	s.awaitReason("shop", "PendingApproval")
	decide(<-asked, events.TypeWorkorderApproved)
	before := s.awaitRunning("shop", "cp-0", "pool-0")
	requireOld := func(after string) {
		t.Helper()
		for range 3 {
			s.reconcile("shop")
		}
		if diff := cmp.Diff([]string{"cp-0", "pool-0"}, s.machines("shop")); diff != "" || plan.IsLeaving(s.machine("shop-pool-0")) {
			t.Errorf("%s: a worker is removed: machines (-want +got):\n%s", after, diff)
		}
	}
	s.change("shop", replicas(1, map[string]int32{"other": 1}))
	s.awaitReason("shop", "PendingApproval", "1 worker")
	requireOld("a request")
	decide(next(t, asked, before.Generation+1), events.TypeWorkorderRejected)
	s.awaitReason("shop", "ApprovalRejected")
	requireOld("a rejection")
	s.change("shop", replicas(1, map[string]int32{"other": 2}))
	decide(next(t, asked, before.Generation+2), events.TypeWorkorderApproved)
	s.awaitRunning("shop", "cp-0", "other-0", "other-1")
}

// TestApprovalOfAWaitingCluster has a cluster grow whose workload API does not answer. The delivery that requests the approval succeeds, although the
// cluster waits: a reply is sent only then.
func TestApprovalOfAWaitingCluster(t *testing.T) {
	t.Parallel()
	g := &gate{}
	s := newEnv(t, envOptions{handle: g.wrap})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	g.close()
	s.setFaults(faults.Rule{Operation: "workload", Error: "503"})
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Approval = &v1alpha1.ApprovalOptions{Policy: v1alpha1.ApprovalGrowth}
		replicas(1, map[string]int32{"pool": 2})(kc)
	})
	request, err := s.function.handle(t.Context(), resyncEvent(s.namespace, "shop", "look"))
	if request == nil || err != nil || request.Type() != events.TypeWorkorderRequested {
		t.Errorf("the delivery replies %v and returns %v, want a request and no error", request, err)
	}
	s.awaitReason("shop", reasonUnreachable)
}

// TestLostRequestForApproval loses the request for a cluster that has waited for the approval of an earlier spec for a long time, as when
// deliveries end after they have written the status. The next resync requests the approval of the present spec.
func TestLostRequestForApproval(t *testing.T) {
	t.Parallel()
	asked, isLost := make(mailbox, 100), atomic.Bool{}
	s := newEnv(t, envOptions{handle: func(handle events.Handler) events.Handler {
		return asked.listen(func(ctx context.Context, in event.Event) (*event.Event, error) {
			reply, err := handle(ctx, in)
			if isLost.Load() {
				reply = nil
			}
			return reply, err
		})
	}})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Approval = &v1alpha1.ApprovalOptions{Policy: v1alpha1.ApprovalGrowth}
	s.create(kc)
	s.awaitReason("shop", "PendingApproval", "1 worker")
	next(t, asked, 1)
	err := kube.OnConflict(func() error {
		kc := s.get("shop")
		before := kc.DeepCopy()
		meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionApproved).LastTransitionTime.Time = time.Now().Add(-30 * time.Minute)
		_, err := s.kube.PatchStatus(t.Context(), before, kc)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	isLost.Store(true)
	s.change("shop", replicas(1, map[string]int32{"pool": 2}))
	s.awaitReason("shop", "PendingApproval", "2 workers")
	isLost.Store(false)
	next(t, asked, 2)
}

// next returns a request for a generation. Duplicates of it may follow.
func next(t *testing.T, asked mailbox, generation int64) event.Event {
	t.Helper()
	const patience = 4 * time.Minute
	end := time.After(patience)
	for {
		select {
		case e := <-asked:
			var r events.WorkorderRequested
			if json.Unmarshal(e.Data(), &r) == nil && r.Generation >= generation && strings.HasSuffix(e.Type(), "requested") {
				return e
			}
		case <-end:
			t.Fatalf("no approval of generation %d was requested", generation)
		}
	}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/signature"
)

type function struct {
	kube    *kube.Client
	results *results
	// talos is the Talos version of clusters that name none.
	talos  string
	images images
	now    func() time.Time
	// peopled are the namespaces that have had a cluster.
	peopled sync.Map
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	if in.Type() == events.TypeWorkorderApproved || in.Type() == events.TypeWorkorderRejected {
		if err := signature.Verify(ctx, f.kube, in); err != nil {
			return nil, err
		}
		return nil, kube.OnConflict(func() error { return f.decided(ctx, in) })
	}
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	look := glance{event: in.ID(), thorough: in.Type() == events.TypeResync, retried: events.Age(in, f.now()) >= quietly}
	switch ref.Kind {
	case "Machine":
		return nil, f.handleMachine(ctx, ref, look)
	case "NetworkNamespace":
		return nil, f.networkMade(ctx, ref, look)
	}
	var reply *event.Event
	look.patience, look.insist, look.ask = longPatience, true, func(e *event.Event) { reply = e }
	err = kube.OnConflict(func() error { return f.settle(ctx, ref.Namespace, ref.Name, look) })
	return reply, err
}

// glance is how closely a delivery looks at a cluster.
type glance struct {
	// event is the one that is handled, which comes again if its delivery fails.
	event string
	// thorough looks also at a cluster that is as it should be.
	thorough bool
	// retried is whether the event has failed for so long that people should know.
	retried bool
	// patience is how long to wait for nodes, which tell nobody when they are ready.
	patience time.Duration
	// insist has the event delivered again while nodes are waited for.
	insist bool
	// ask sends the request for an approval, nil where a delivery cannot.
	ask func(*event.Event)
}

// quietly is how long an event may fail before the status says so. Most errors of the API
// server are over by then; to tell each of them would cost two writes and a change of
// Ready.
const quietly = 30 * time.Second

// longPatience stays far below the delivery's time limit.
const longPatience = 5 * time.Second

// handleMachine does what a Machine needs of layer 4. A machine that has just come
// up gets its configuration, and nothing else is touched, so that a hundred of them
// don't do each other's work.
func (f *function) handleMachine(ctx context.Context, ref events.Ref, look glance) error {
	if none, err := f.noCluster(ctx, ref.Namespace); err != nil || none {
		return err
	}
	m := &v1alpha1.Machine{}
	err := f.kube.Get(ctx, ref.Namespace, ref.Name, m)
	if kube.NotFound(err) {
		return f.machineGone(ctx, ref, look)
	}
	owner := metav1.GetControllerOf(m)
	if err != nil || owner == nil || owner.Kind != "KubernetesCluster" || onItsWay(m) {
		return err
	}
	if orphan, err := f.releaseOrphan(ctx, m, owner); err != nil || orphan {
		return err
	}
	if needsConfig(m) {
		return f.configureMachine(ctx, owner.Name, m)
	}
	controlPlane := m.Labels[v1alpha1.LabelClusterRole] == v1alpha1.RoleControlPlane
	look.thorough = look.thorough || !running(m) || leaving(m) || m.Annotations[v1alpha1.AnnotationRemove] == "true"
	if look.insist = installed(m) && controlPlane; look.insist {
		look.patience = longPatience
	}
	return kube.OnConflict(func() error { return f.settle(ctx, ref.Namespace, owner.Name, look) })
}

// noCluster tells whether a namespace has no cluster that a Machine of it could be of.
// Many Machines are asked about at once, so that this is fewer requests than to read
// each of them. That there was a cluster is remembered: it only means to look closer.
func (f *function) noCluster(ctx context.Context, namespace string) (bool, error) {
	if _, had := f.peopled.Load(namespace); had {
		return false, nil
	}
	list := &v1alpha1.KubernetesClusterList{}
	if err := f.kube.ListPage(ctx, namespace, metav1.ListOptions{Limit: 1}, list); err != nil {
		return false, err
	}
	if len(list.Items) == 0 {
		return true, nil
	}
	f.peopled.Store(namespace, true)
	return false, nil
}

// machineGone looks at the clusters that a machine may have been of.
func (f *function) machineGone(ctx context.Context, ref events.Ref, look glance) error {
	look.thorough = true
	return f.settleEach(ctx, ref.Namespace, look, func(kc *v1alpha1.KubernetesCluster) bool {
		return strings.HasPrefix(ref.Name, kc.Name+"-")
	})
}

// networkMade looks at the clusters for which there was no network.
func (f *function) networkMade(ctx context.Context, ref events.Ref, look glance) error {
	look.thorough = false
	return f.settleEach(ctx, ref.Namespace, look, func(kc *v1alpha1.KubernetesCluster) bool {
		return network.Missing(kc.Status.Conditions)
	})
}

// settleEach brings the clusters of a namespace further that are concerned.
func (f *function) settleEach(ctx context.Context, namespace string, look glance, concerned func(*v1alpha1.KubernetesCluster) bool) error {
	list := &v1alpha1.KubernetesClusterList{}
	if err := f.kube.List(ctx, namespace, "", list); err != nil {
		return err
	}
	for i := range list.Items {
		if !concerned(&list.Items[i]) {
			continue
		}
		if err := kube.OnConflict(func() error { return f.settle(ctx, namespace, list.Items[i].Name, look) }); err != nil {
			return err
		}
	}
	return nil
}

// needsConfig tells whether a machine alone is to be looked at: its configuration has to be
// provided, or its node may have started with it.
func needsConfig(m *v1alpha1.Machine) bool {
	return addressed(m) && !installed(m) && (running(m) || !provided(m))
}

// onItsWay tells whether a new machine goes from step to step by itself, so that
// its cluster has nothing to do and nothing to tell.
func onItsWay(m *v1alpha1.Machine) bool {
	if installed(m) || running(m) || m.DeletionTimestamp != nil {
		return false
	}
	switch readyReason(m) {
	case "", "WaitingForAddress", "Provisioning", "Starting":
		return true
	case reasonWaitingForMachineConfig:
		return provided(m)
	default:
		return false
	}
}

// readyReason is the reason of a machine's condition Ready, or empty.
func readyReason(m *v1alpha1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// settle brings one KubernetesCluster further.
func (f *function) settle(ctx context.Context, namespace, name string, look glance) error {
	kc := &v1alpha1.KubernetesCluster{}
	if err := f.kube.Get(ctx, namespace, name, kc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if kc.DeletionTimestamp == nil && settled(kc) && !look.thorough && !kube.AskedFor(kc) {
		return nil
	}
	c := &cluster{KubernetesCluster: kc, before: kc.DeepCopy(), event: look.event, until: f.now().Add(look.patience), patient: look.patience > 0}
	defer c.close()
	if kc.DeletionTimestamp != nil {
		return f.removeOrTell(ctx, c)
	}
	if kube.AddFinalizer(kc, v1alpha1.FinalizerCluster) {
		if _, err := f.kube.Patch(ctx, c.before, kc); err != nil {
			return err
		}
		c.before = kc.DeepCopy()
	}
	if kc.Spec.Paused {
		if err := f.readMachines(ctx, c); err != nil {
			return err
		}
		if err := f.releaseDeleted(ctx, c); err != nil {
			return err
		}
		return f.write(ctx, c, tell(c, "Paused", "nothing is changed while spec.paused is true", false))
	}
	return f.step(ctx, c, look)
}

// step brings the cluster as far as it goes, and says in its status how far.
func (f *function) step(ctx context.Context, c *cluster, look glance) error {
	asked := requestedBy(c.Status.Approval)
	err := secretsFault(f.advanceApproved(ctx, c))
	if kube.Conflict(err) {
		return err
	}
	if unexpected(c, err) && !look.retried {
		return cmp.Or(f.patchStatus(ctx, c), settling(c, err))
	}
	told := summarise(c, err)
	if c.unanswered && (look.patience > 0 || isEtcdEnd(err)) {
		describeUnanswered(c, err)
	}
	if err := f.write(ctx, c, told); err != nil {
		return err
	}
	if look.ask != nil && f.asks(c, asked, look.thorough) {
		reply, err := request(c.KubernetesCluster)
		if err != nil {
			return err
		}
		look.ask(reply)
	}
	return deliverAgain(c, err, look)
}

// deliverAgain returns the error that has an event delivered again, nil where nothing is left to
// do or another event follows. A cluster whose authorities are rotated is Ready meanwhile.
func deliverAgain(c *cluster, err error, look glance) error {
	if err == nil && isRotating(c.KubernetesCluster) && look.insist {
		return settling(c, waits{reason: "Rotating", message: c.authorities.message, silent: true})
	}
	if err == nil || errors.As(err, new(fault)) {
		return nil
	}
	if w := (waits{}); errors.As(err, &w) && (!w.silent || !look.insist) {
		return nil
	}
	return settling(c, err)
}

// secretsFault returns a fault for a request for a Secret or a ConfigMap that RBAC refuses,
// and any other error as it is.
func secretsFault(err error) error {
	if message, ok := kube.SecretsForbidden(err, functionName); ok {
		return fault{"SecretsNotAllowed", message}
	}
	return err
}

// settling says of which cluster an error is.
func settling(c *cluster, err error) error {
	return fmt.Errorf("settle cluster %s/%s: %w", c.Namespace, c.Name, err)
}

func settled(kc *v1alpha1.KubernetesCluster) bool {
	return isTrue(kc, v1alpha1.ConditionReady) && kc.Status.ObservedGeneration == kc.Generation && !needsRotation(kc)
}

// write patches the status if it has changed, and tells people if the reason has.
func (f *function) write(ctx context.Context, c *cluster, told story) error {
	if err := f.patchStatus(ctx, c); err != nil {
		return err
	}
	if told.news {
		f.kube.Tell(ctx, c.KubernetesCluster, told.warning, told.reason, told.message)
	}
	events.Report(ctx, string(c.Status.Phase), told.message)
	return nil
}

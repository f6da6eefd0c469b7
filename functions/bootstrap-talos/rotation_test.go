package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/talosconfig"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// rotate requests a rotation.
func (s *env) rotate(cluster, rotation string) {
	s.Helper()
	s.change(cluster, func(kc *v1alpha1.KubernetesCluster) {
		if kc.Spec.Talos == nil {
			kc.Spec.Talos = &v1alpha1.TalosOptions{}
		}
		kc.Spec.Talos.RotateAuthorities = rotation
	})
}

// awaitRotation waits until a rotation is completed, and returns the cluster.
func (s *env) awaitRotation(cluster, rotation string) *v1alpha1.KubernetesCluster {
	s.Helper()
	feed.Until(s, "rotation "+rotation+" is done", func() (bool, string) {
		kc := s.get(cluster)
		c := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionAuthoritiesRotated)
		if c == nil {
			return false, "no condition; " + kc.Status.Message
		}
		a := kc.Status.Authorities
		return c.Status == metav1.ConditionTrue && a != nil && a.Completed == rotation && a.Phase == "", c.Message + "; " + kc.Status.Message
	})
	return s.awaitRunning(cluster)
}

// authoritiesOf returns the keys of a cluster, as a user has saved them.
func (s *env) authoritiesOf(cluster string) *talos.Keys {
	s.Helper()
	bundle, err := talos.DecodeBundle(s.secret(cluster + "-talos-secrets").Data[pkiKey])
	if err != nil {
		s.Fatal(err)
	}
	return &talos.Keys{Present: bundle}
}

// handedOut has the credentials that a user has of a cluster.
type handedOut struct {
	talosconfig, kubeconfig []byte
	keys                    *talos.Keys
}

func (s *env) handedOut(cluster string) handedOut {
	s.Helper()
	return handedOut{s.secret(cluster + "-talosconfig").Data[talosconfigKey], s.secret(cluster + "-kubeconfig").Data[kubeconfigKey], s.authoritiesOf(cluster)}
}

// isAdmitted reports whether a node answers a client with a talosconfig. The client trusts every server.
func (s *env) isAdmitted(node string, document []byte) bool {
	s.Helper()
	current, err := talosconfig.Read(document)
	if err != nil {
		s.Fatal(err)
	}
	pair, err := tls.X509KeyPair(current.Crt, current.Key)
	if err != nil {
		s.Fatal(err)
	}
	return s.answers(node, &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true})
}

func (s *env) answers(node string, config *tls.Config) bool {
	s.Helper()
	ctx, c, end, err := talos.Dial(s.Context(), plan.Address(s.machine(node)), config, talos.ShortTimeout)
	if err != nil {
		s.Fatal(err)
	}
	defer end()
	_, err = c.Version(ctx)
	return err == nil
}

// checkCredentials checks that credentials from before a rotation are rejected, and that the present ones are
// accepted.
func (s *env) checkCredentials(cluster string, old handedOut) {
	s.Helper()
	now := s.handedOut(cluster)
	if bytes.Equal(old.keys.Present.Certs.OS.Crt, now.keys.Present.Certs.OS.Crt) || bytes.Equal(old.keys.Present.Certs.K8s.Crt, now.keys.Present.Certs.K8s.Crt) {
		s.Error("an authority was not replaced")
	}
	stolen, err := talos.KubernetesCredentials(old.keys.Present, now.keys.Present)
	if err != nil {
		s.Fatal(err)
	}
	own, err := talos.KubernetesCredentials(now.keys.Present)
	if err != nil {
		s.Fatal(err)
	}
	for _, name := range s.machines(cluster) {
		node := cluster + "-" + name
		if s.isAdmitted(node, old.talosconfig) {
			s.Errorf("%s accepts the old talosconfig", node)
		}
		if !s.isAdmitted(node, now.talosconfig) {
			s.Errorf("%s rejects the present talosconfig", node)
		}
		if s.machine(node).Labels[v1alpha1.LabelClusterRole] != v1alpha1.RoleControlPlane {
			continue
		}
		host := plan.Address(s.machine(node)) + ":6443"
		if _, ok := talos.AskKubernetes(s.Context(), host, stolen); ok {
			s.Errorf("the API server of %s accepts an administrator of the old authority", node)
		}
		if _, ok := talos.AskKubernetes(s.Context(), host, own); !ok {
			s.Errorf("the API server of %s rejects an administrator", node)
		}
	}
	if err := s.kube.Get(s.Context(), s.namespace, cluster+"-"+nextPKISecret, &corev1.Secret{}); !kube.NotFound(err) {
		s.Errorf("the Secret of the rotation is left: %v", err)
	}
	for _, document := range [][]byte{now.talosconfig, now.kubeconfig} {
		if !trustsOnly(document, now.keys) {
			s.Error("a client configuration trusts another authority than the present one")
		}
	}
	if ready, all := s.nodes(cluster); len(ready) != len(all) {
		s.Errorf("Ready are %v of %v", ready, all)
	}
}

// trustsOnly reports whether a talosconfig or kubeconfig trusts exactly the authority of the given
// keys.
func trustsOnly(document []byte, k *talos.Keys) bool {
	if current, err := talosconfig.Read(document); err == nil {
		return talos.SameCertificates(current.CA, k.TrustedTalos())
	}
	config, err := kube.ReadKubeconfig(document)
	return err == nil && talos.SameCertificates(config.CAData, k.TrustedKubernetes())
}

// countFailures calls a function repeatedly until enough is called, and returns the longest sequence of
// failures. A call that ends at its deadline is none: a busy machine answers late, and no answer says
// that a credential is invalid.
func (s *env) countFailures(call func(context.Context) error) (enough func() (worst time.Duration, last error)) {
	stop, done := make(chan struct{}), make(chan struct{})
	var worst time.Duration
	var last error
	go func() {
		defer close(done)
		since := time.Now()
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			if err := call(s.Context()); err != nil && status.Code(err) != codes.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
				last, worst = err, max(worst, time.Since(since))
				continue
			}
			since = time.Now()
		}
	}()
	return func() (time.Duration, error) {
		close(stop)
		<-done
		return worst, last
	}
}

// TestRotation rotates the authorities of a cluster. The credentials in the Secrets are valid
// throughout.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 3, 2)
	kc.Spec.Talos = &v1alpha1.TalosOptions{RotateAuthorities: "first"}
	s.create(kc)
	if c := meta.FindStatusCondition(s.awaitRunning("shop").Status.Conditions, v1alpha1.ConditionAuthoritiesRotated); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("the value at the creation starts no rotation: %+v", c)
	}
	old := s.handedOut("shop")
	api := s.countFailures(func(ctx context.Context) error {
		_, err := s.workload("shop").CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	})
	backup := s.countFailures(func(ctx context.Context) error {
		current, err := talosconfig.Read(s.secret("shop-talosconfig").Data[talosconfigKey])
		if err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(current.Crt, current.Key)
		if err != nil {
			return err
		}
		config := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: poolOfPEM(current.CA), MinVersion: tls.VersionTLS12}
		for _, endpoint := range current.Endpoints {
			ctx, c, end, err := talos.Dial(ctx, endpoint, config, talos.DialTimeout)
			if err != nil {
				return err
			}
			_, err = c.Version(ctx)
			end()
			if err != nil {
				return err
			}
		}
		return nil
	})
	s.rotate("shop", "second")
	s.awaitRotation("shop", "second")
	for what, enough := range map[string]func() (time.Duration, error){"kubeconfig": api, "talosconfig": backup} {
		if worst, err := enough(); worst > 2*time.Second {
			t.Errorf("the %s of the Secret was invalid for %s: %v", what, worst, err)
		}
	}
	s.checkCredentials("shop", old)
	s.requireOneEtcd("shop", 3)
	proxy, err := s.workload("shop").AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := proxy.Spec.Template.Annotations[v1alpha1.AnnotationRotation]; got != "second" {
		t.Errorf("kube-proxy was restarted for rotation %q", got)
	}
	for _, node := range s.machines("shop") {
		if strings.Contains(s.activeConfig("shop", node), "acceptedCAs") {
			t.Errorf("%s still accepts another authority", node)
		}
	}
	for _, reason := range []string{"RotationStarted", "RotationFinished"} {
		if got := s.eventsWith(reason); got != 1 {
			t.Errorf("%d Events %s, want 1", got, reason)
		}
	}
}

// eventsWith returns the number of Events with a reason.
func (s *env) eventsWith(reason string) (n int) {
	s.Helper()
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		s.Fatal(err)
	}
	list, err := client.CoreV1().Events(s.namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

// TestRotationIsKilled rotates while each delivery dies at its first write, alternately before and
// after the API server has handled it, and while nodes reject requests, or carry them out without an
// answer.
func TestRotationIsKilled(t *testing.T) {
	t.Parallel()
	r := &reaper{}
	s := newEnv(t, envOptions{wrap: r.wrap, handle: r.handle})
	s.plan.Seed(7)
	s.create(s.cluster("shop", 3, 1))
	s.awaitRunning("shop")
	old := s.handedOut("shop")
	if err := s.plan.Set(
		faults.Rule{Operation: "MachineService/*", Error: "Unavailable", Rate: 0.1},
		faults.Rule{Operation: "MachineService/ApplyConfiguration", Error: "reset", After: true, Rate: 0.3},
		faults.Rule{Operation: "workload", Error: "503", Rate: 0.05},
	); err != nil {
		t.Fatal(err)
	}
	began := r.writes.Load()
	s.rotate("shop", "2026-11")
	s.awaitRotation("shop", "2026-11")
	if err := s.plan.Set(); err != nil {
		t.Fatal(err)
	}
	s.checkCredentials("shop", old)
	s.requireOneEtcd("shop", 3)
	t.Logf("%d deliveries have died", r.writes.Load()-began)
}

// awaitRotationPhase waits until a rotation is in a phase, with these words in its message.
func (s *env) awaitRotationPhase(cluster string, phase v1alpha1.RotationPhase, words ...string) {
	s.Helper()
	feed.Until(s, "the rotation is "+string(phase), func() (bool, string) {
		kc := s.get(cluster)
		c := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionAuthoritiesRotated)
		if c == nil {
			return false, "no condition"
		}
		ok := c.Status == metav1.ConditionFalse && c.Reason == string(phase)
		for _, w := range words {
			ok = ok && strings.Contains(c.Message, w)
		}
		return ok, c.Reason + ": " + c.Message + "; Ready: " + kc.Status.Message
	})
}

// TestRotationWaitsForNode rotates while a worker is down. The condition names it, and each remedy in
// the message continues the rotation: starting the node, and deleting its Machine. A machine that is
// added and another rotation that is requested meanwhile are served as well.
func TestRotationWaitsForNode(t *testing.T) {
	t.Parallel()
	for name, remedy := range map[string]func(*env) error{
		"Start":  func(s *env) error { return s.power(t.Context(), s.machine("shop-pool-1")) },
		"Delete": func(s *env) error { return s.kube.Delete(t.Context(), s.machine("shop-pool-1")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.create(s.cluster("shop", 1, 2))
			s.awaitRunning("shop")
			old := s.handedOut("shop")
			s.rotateWithout("shop", "first", "shop-pool-1")
			s.rotate("shop", "second")
			s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Replicas = 3 })
			feed.Until(t, "the new machine has its configuration", func() (bool, string) {
				names := s.machines("shop")
				return slices.Contains(names, "pool-2") && plan.IsInstalled(s.machine("shop-pool-2")), s.get("shop").Status.Message
			})
			s.awaitRotationPhase("shop", v1alpha1.RotationAccepting, "rotation first", "3/4", "shop-pool-1")
			if err := remedy(s); err != nil {
				t.Fatal(err)
			}
			s.awaitRotation("shop", "second")
			if got := s.machines("shop"); len(got) != 4 {
				t.Errorf("machines %v, want 4", got)
			}
			s.checkCredentials("shop", old)
			if got := s.eventsWith("RotationFinished"); got != 2 {
				t.Errorf("%d rotations are completed, want 2", got)
			}
		})
	}
}

// TestWorkerIsCertifiedAgain has a worker reach a phase before its control plane, which then certifies
// it as in the previous phase. Talos keeps that certificate for half a day.
func TestWorkerIsCertifiedAgain(t *testing.T) {
	t.Parallel()
	var deliveries sync.RWMutex
	written := &statuses{}
	s := newEnv(t, envOptions{wrap: written.wrap, handle: func(next events.Handler) events.Handler {
		return func(ctx context.Context, in event.Event) (*event.Event, error) {
			deliveries.RLock()
			defer deliveries.RUnlock()
			return next(ctx, in)
		}
	}})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	old := s.handedOut("shop")
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/ApplyConfiguration", Error: "Unavailable"}); err != nil {
		t.Fatal(err)
	}
	s.rotate("shop", "2026-11")
	s.awaitRotationPhase("shop", v1alpha1.RotationAccepting, "0/2")
	func() {
		deliveries.Lock()
		defer deliveries.Unlock()
		if err := s.plan.Set(); err != nil {
			t.Fatal(err)
		}
		k, err := s.function.secrets.readKeys(t.Context(), s.get("shop"))
		if err != nil {
			t.Fatal(err)
		}
		before := s.plan.Calls()["trustd"]
		if _, err := talos.AskTalos(t.Context(), plan.Address(s.machine("shop-pool-0")), s.access("shop"), k.ChangeNode); err != nil {
			t.Fatal(err)
		}
		feed.Until(t, "the control plane certifies the worker", func() (bool, string) {
			calls := s.plan.Calls()["trustd"]
			return calls > before, fmt.Sprint(calls)
		})
	}()
	s.awaitRotation("shop", "2026-11")
	if !written.contain("1/2", "waiting for node shop-pool-0 to accept") {
		t.Error("no status says that the worker has the certificate of the previous phase")
	}
	s.checkCredentials("shop", old)
}

// rotateWithout starts a rotation of a cluster with three nodes. One of them goes down before it
// accepts the new authorities.
func (s *env) rotateWithout(cluster, rotation, node string) {
	s.Helper()
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/ApplyConfiguration", Error: "Unavailable"}); err != nil {
		s.Fatal(err)
	}
	s.rotate(cluster, rotation)
	s.awaitRotationPhase(cluster, v1alpha1.RotationAccepting, "0/3", "changes node "+cluster+"-cp-0")
	if err := s.fleet.PowerOff(string(s.machine(node).UID)); err != nil {
		s.Fatal(err)
	}
	if err := s.plan.Set(); err != nil {
		s.Fatal(err)
	}
	s.awaitRotationPhase(cluster, v1alpha1.RotationAccepting, "2/3", node+", which does not answer", "delete Machine "+node)
}

// mark sets an annotation of a Secret.
func (s *env) mark(secret, annotation, value string) {
	s.Helper()
	if err := s.kube.Merge(s.Context(), s.secret(secret), map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}}); err != nil {
		s.Fatal(err)
	}
}

// recordRotation writes the state of a rotation into the status of a cluster.
func (s *env) recordRotation(cluster string, a *v1alpha1.AuthoritiesStatus) {
	s.Helper()
	err := kube.OnConflict(func() error {
		kc := s.get(cluster)
		before := kc.DeepCopy()
		kc.Status.Authorities = a
		_, err := s.kube.PatchStatus(s.Context(), before, kc)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// TestKeysOfARotationAreDeleted deletes the Secret of a rotation, before and after a node has the new
// authorities.
func TestKeysOfARotationAreDeleted(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	old := s.handedOut("shop")
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/ApplyConfiguration", Error: "Unavailable"}); err != nil {
		t.Fatal(err)
	}
	s.rotate("shop", "2026-11")
	s.awaitRotationPhase("shop", v1alpha1.RotationAccepting, "0/2")
	first := s.secret("shop-talos-secrets-next")
	if first.Immutable == nil || !*first.Immutable {
		t.Error("the keys can be changed")
	}

	s.mark(first.Name, v1alpha1.AnnotationRotationPhase, "Halfway")
	s.awaitReason("shop", "RotationDamaged", "Halfway", "status.authorities.phase")
	s.mark(first.Name, v1alpha1.AnnotationRotationPhase, string(v1alpha1.RotationAccepting))
	s.recordRotation("shop", nil)
	s.awaitRotationPhase("shop", v1alpha1.RotationAccepting, "0/2")

	if err := s.kube.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "other keys are created", func() (bool, string) {
		now := &corev1.Secret{}
		err := s.kube.Get(t.Context(), s.namespace, first.Name, now)
		return err == nil && now.UID != first.UID, s.get("shop").Status.Message
	})
	s.awaitRotationPhase("shop", v1alpha1.RotationAccepting, "0/2")

	next := s.secret(first.Name)
	s.mark(first.Name, v1alpha1.AnnotationRotationPhase, string(v1alpha1.RotationIssuing))
	s.awaitRotationPhase("shop", v1alpha1.RotationIssuing)
	if err := s.kube.Delete(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("shop", "KeysLost", "shop-talos-secrets-next", "restore")
	s.restore(next)
	s.awaitRotationPhase("shop", v1alpha1.RotationAccepting, "0/2")
	if err := s.plan.Set(); err != nil {
		t.Fatal(err)
	}
	s.awaitRotation("shop", "2026-11")
	s.checkCredentials("shop", old)
}

// TestRotationEndsOnce starts from every state of the Secrets in which a delivery may die at the end
// of a rotation.
func TestRotationEndsOnce(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop")
	s.rotate("shop", "2026-11")
	s.awaitRotation("shop", "2026-11")
	done := s.secret("shop-talos-secrets")
	contract, err := config.ParseContractFromVersion("v" + plan.DefaultTalosVersion)
	if err != nil {
		t.Fatal(err)
	}
	former, err := talos.WithNewAuthorities(s.authoritiesOf("shop").Present, time.Now(), contract)
	if err != nil {
		t.Fatal(err)
	}
	finishing := keysSecret(s.get("shop"), nextPKISecret, "2026-11", done.Data[pkiKey])
	finishing.Annotations[v1alpha1.AnnotationRotationPhase] = string(v1alpha1.RotationFinishing)
	for reason, present := range map[string]*corev1.Secret{
		"the present keys are not replaced yet": keysSecret(s.get("shop"), pkiSecret, "", former),
		"the present keys are deleted":          nil,
		"the present keys are replaced":         keysSecret(s.get("shop"), pkiSecret, "2026-11", done.Data[pkiKey]),
	} {
		s.create(finishing.DeepCopy())
		if err := s.kube.Delete(t.Context(), s.secret("shop-talos-secrets")); err != nil {
			t.Fatal(err)
		}
		if present != nil {
			s.create(present)
		}
		s.recordRotation("shop", &v1alpha1.AuthoritiesStatus{Rotation: "2026-11", Phase: v1alpha1.RotationFinishing})
		s.awaitRotation("shop", "2026-11")
		if now := s.secret("shop-talos-secrets"); !bytes.Equal(now.Data[pkiKey], done.Data[pkiKey]) || now.Annotations[v1alpha1.AnnotationRotation] != "2026-11" {
			t.Errorf("%s: the keys are not those of the rotation", reason)
		}
		if err := s.kube.Get(t.Context(), s.namespace, finishing.Name, &corev1.Secret{}); !kube.NotFound(err) {
			t.Errorf("%s: the Secret of the rotation is left: %v", reason, err)
		}
	}
	s.recordRotation("shop", &v1alpha1.AuthoritiesStatus{Rotation: "2026-11", Phase: v1alpha1.RotationFinishing})
	s.awaitRotation("shop", "2026-11")
}

func poolOfPEM(file []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(file)
	return pool
}

package main

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
)

// The authorities of a cluster are rotated as talosctl rotate-ca does it. Each phase only
// changes the authorities that nodes have, and begins when every node has come through the one
// before, so that any two neighbouring phases understand each other. The phase is kept with
// the next keys: whoever reads them knows which nodes have them.

// reasonTalosTooOld is the reason of AuthoritiesRotated where nodes know no accepted authorities.
const reasonTalosTooOld = "TalosTooOld"

// mirrorRotation writes into the status how far the rotation is that the keys show. It is a
// fault where the next keys are gone that nodes have.
func (c *cluster) mirrorRotation(now metav1.Time) error {
	k, s := c.keys, c.Status.Authorities
	begun := isRotating(c.KubernetesCluster) && s.Rotation != k.rotated
	wanted := wantedRotation(c.KubernetesCluster)
	if k.next == nil && k.rotated != "" && !begun {
		c.Status.Authorities = &v1alpha1.AuthoritiesStatus{Completed: k.rotated}
		c.authorities = configReport{true, v1alpha1.ConditionAuthoritiesRotated, "the authorities are those of rotation " + k.rotated}
	}
	switch {
	case k.next != nil:
		if s == nil || s.Rotation != k.rotation || s.Phase != k.phase {
			c.Status.Authorities = &v1alpha1.AuthoritiesStatus{Rotation: k.rotation, Phase: k.phase, Since: &now, Completed: k.rotated}
		}
		c.reportRotation("waits for the cluster's API")
	case begun && s.Phase != v1alpha1.RotationAccepting:
		c.unanswered = true
		return fault{"KeysLost", fmt.Sprintf(
			"Secret %s is gone, and nodes have certificates of the authorities in it: restore it from a backup, or delete the cluster and create it again", secretName(c.KubernetesCluster, nextPKISecret))}
	case begun:
		c.authorities = configReport{false, string(s.Phase), "rotation " + s.Rotation + " begins"}
	case wanted != "" && wanted != k.rotated && !c.plan.contract.Greater(config.TalosVersion1_6):
		c.authorities = configReport{false, reasonTalosTooOld, fmt.Sprintf(
			"Talos %s cannot accept two authorities at a time: write 1.7.0 or a later version into spec.talos.version, and rotation %s follows", c.plan.talos, wanted)}
	case wanted != "" && wanted != k.rotated:
		c.authorities = configReport{false, "WaitingForCluster", fmt.Sprintf(
			"rotation %s begins when every node is Ready and runs the wanted versions and configuration", wanted)}
	}
	return nil
}

// reportRotation says in the condition how far the rotation is, and for what it waits.
func (c *cluster) reportRotation(waits string) {
	s := c.Status.Authorities
	message := "rotation " + s.Rotation
	if words := rotationWords[s.Phase]; words != "" && s.Progress != "" {
		message += fmt.Sprintf(": %s of the nodes %s", s.Progress, words)
	}
	if waits != "" {
		message += "; " + waits
	}
	c.authorities = configReport{false, string(s.Phase), message}
}

// beginRotation makes the next keys of a cluster that is in order, if its spec asks for
// others. That it does so is in the status before.
func (f *function) beginRotation(ctx context.Context, c *cluster) error {
	rotation := wantedRotation(c.KubernetesCluster)
	if isRotating(c.KubernetesCluster) && c.Status.Authorities.Rotation != c.keys.rotated {
		rotation = c.Status.Authorities.Rotation
	}
	if rotation == "" || rotation == c.keys.rotated || !c.config.current || c.authorities.reason == reasonTalosTooOld {
		return nil
	}
	if !isRotating(c.KubernetesCluster) {
		now := metav1.NewTime(f.now())
		c.Status.Authorities = &v1alpha1.AuthoritiesStatus{Rotation: rotation, Phase: v1alpha1.RotationAccepting, Since: &now, Completed: c.keys.rotated}
		if err := f.patchStatus(ctx, c); err != nil {
			return err
		}
	}
	data, err := withNewAuthorities(c.keys.present, f.now(), c.plan.contract)
	if err != nil {
		return err
	}
	secret := keysSecret(c.KubernetesCluster, nextPKISecret, rotation, data)
	secret.Annotations[v1alpha1.AnnotationRotationPhase] = string(v1alpha1.RotationAccepting)
	if err := f.kube.Create(ctx, secret); err != nil {
		return err
	}
	c.reportRotation("begins")
	f.kube.Tell(ctx, c.KubernetesCluster, false, "RotationStarted", fmt.Sprintf("rotation %s of the certificate authorities of the Talos API and of Kubernetes has started", rotation))
	return nil
}

// rotate goes on with the rotation that is under way, until the phase ends or the delivery's
// time is over. late is what else the cluster waits for: nodes that are not Ready may wait for
// what the rotation changes next.
func (f *function) rotate(ctx context.Context, c *cluster, late error) error {
	if errors.As(late, new(fault)) {
		return late
	}
	r, err := newRotation(c.keys)
	if err != nil {
		return err
	}
	err = poll(ctx, c.until, func(ctx context.Context) error { return f.rotateOnce(ctx, c, r) })
	if errors.As(err, new(waits)) {
		err = nil // the condition tells
		if c.patient && len(r.renew) > 0 {
			err = f.setBack(ctx, c, r)
		}
	}
	if err == nil {
		err = late
	}
	if err == nil && c.keys.phase != v1alpha1.RotationFinishing {
		err = f.missingNodes(c)
	}
	return err
}

// rotateOnce looks at every node, and does the next step. It returns waits while the phase
// lasts.
func (f *function) rotateOnce(ctx context.Context, c *cluster, r *rotation) error {
	if c.keys.phase == v1alpha1.RotationFinishing {
		return f.finishRotation(ctx, c)
	}
	nodes, err := c.workload.nodes(ctx)
	if err == nil {
		c.nodes = c.current(nodes)
	}
	shown := c.observeRotation(ctx, r)
	serve := c.credentialsServe(f.now())
	step := decideRotation(c.keys.phase, shown, serve)
	r.renew = step.renew
	if !serve && step.done == len(shown) {
		if err := f.keepCredentials(ctx, c); err != nil { // a node can sign a kubeconfig by now
			return err
		}
	}
	c.Status.Authorities.Progress = fmt.Sprintf("%d/%d", step.done, len(shown))
	c.reportRotation(step.waits)
	if step.next == v1alpha1.RotationRemovingKubernetes {
		if err := c.workload.restartAddons(ctx, c.keys.rotation, func(ca []byte) bool {
			return sameCertificates(ca, c.keys.next.Certs.K8s.Crt)
		}); err != nil {
			if w := (waits{}); errors.As(err, &w) {
				c.reportRotation(w.message)
			}
			return err
		}
	}
	if step.next != "" {
		return f.enterPhase(ctx, c, step.next)
	}
	if len(step.change) > 0 {
		if err := f.checkKeys(ctx, c); err != nil {
			return err
		}
		if err := r.change(ctx, c.keys, c.addressesOf(step.change)); err != nil {
			return err
		}
	}
	return waits{reason: "Rotating", message: step.waits, silent: true}
}

// setBack gives workers the authorities of the phase before, since they have waited in vain for
// certificates of this one. The next look gives them those of this one again, with which they
// ask for other certificates.
func (f *function) setBack(ctx context.Context, c *cluster, r *rotation) error {
	if err := f.checkKeys(ctx, c); err != nil {
		return err
	}
	return r.change(ctx, c.keys.before(), c.addressesOf(r.renew))
}

// enterPhase writes the next phase beside the next keys, unless another delivery has done so.
// The status then wakes the delivery that goes on with it.
func (f *function) enterPhase(ctx context.Context, c *cluster, next v1alpha1.RotationPhase) error {
	before := c.keys.nextSecret
	after := before.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationRotationPhase, string(next))
	if _, err := f.kube.Patch(ctx, before, after); err != nil {
		return err
	}
	now := metav1.NewTime(f.now())
	s := c.Status.Authorities
	s.Phase, s.Since, s.Progress = next, &now, ""
	c.reportRotation("")
	return nil
}

// finishRotation replaces the keys of the cluster by those that all nodes have by now. At each
// moment one Secret has them.
func (f *function) finishRotation(ctx context.Context, c *cluster) error {
	k := c.keys
	data := k.nextSecret.Data[pkiKey]
	if k.presentSecret != nil && k.rotated != k.rotation {
		if err := f.kube.DeleteExactly(ctx, k.presentSecret); err != nil {
			return err
		}
		k.presentSecret = nil
	}
	if k.presentSecret == nil {
		if err := f.kube.Create(ctx, keysSecret(c.KubernetesCluster, pkiSecret, k.rotation, data)); err != nil {
			return err
		}
	}
	if err := f.kube.DeleteExactly(ctx, k.nextSecret); err != nil {
		return err
	}
	c.Status.Authorities = &v1alpha1.AuthoritiesStatus{Completed: k.rotation}
	c.authorities = configReport{true, v1alpha1.ConditionAuthoritiesRotated, "the authorities are those of rotation " + k.rotation}
	f.kube.Tell(ctx, c.KubernetesCluster, false, "RotationFinished", fmt.Sprintf(
		"rotation %s is done: every talosconfig and kubeconfig that was handed out before it has ceased to work", k.rotation))
	return nil
}

// rotation is how a delivery finds out what nodes show: as a client of either authority.
type rotation struct {
	talos, kubernetes struct{ present, next *access }
	// renew are the workers whose certificates are not of the phase, as seen last.
	renew []string
}

func newRotation(k *keys) (*rotation, error) {
	r := &rotation{}
	var err error
	for _, client := range []struct {
		to    **access
		as    func(bundle *secrets.Bundle, others ...*secrets.Bundle) (*access, error)
		which *secrets.Bundle
		other *secrets.Bundle
	}{
		{&r.talos.present, accessTo, k.present, k.next},
		{&r.talos.next, accessTo, k.next, k.present},
		{&r.kubernetes.present, kubernetesAccess, k.present, k.next},
		{&r.kubernetes.next, kubernetesAccess, k.next, k.present},
	} {
		if *client.to, err = client.as(client.which, client.other); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// kubernetesAccess is an administrator's to the API servers of a cluster, for as long as a
// delivery may need it.
func kubernetesAccess(bundle *secrets.Bundle, others ...*secrets.Bundle) (*access, error) {
	failed := func(err error) (*access, error) {
		return nil, fmt.Errorf("make Kubernetes client certificate: %w", err)
	}
	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.K8s)
	if err != nil {
		return failed(err)
	}
	now := bundle.Clock.Now()
	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(functionName), x509.Organization("system:masters"),
		x509.NotBefore(now.Add(-time.Minute)), x509.NotAfter(now.Add(ownCertificate)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature), x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	if err != nil {
		return failed(err)
	}
	a := &access{certificate: *pair.Certificate}
	for _, b := range append([]*secrets.Bundle{bundle}, others...) {
		authority, err := b.Certs.K8s.GetCert()
		if err != nil {
			return failed(errors.New("the cluster's authority is no certificate"))
		}
		a.authorities = append(a.authorities, authority)
	}
	return a, nil
}

// observe finds out what every node shows that has its configuration, or may have it. Nodes
// without one get it as the phase is then.
func (c *cluster) observeRotation(ctx context.Context, r *rotation) []rotatingNode {
	var shown []rotatingNode
	for name, m := range c.machines {
		if installed(m) || provided(m) {
			member := slices.ContainsFunc(c.plan.members, func(p member) bool { return p.name == name })
			shown = append(shown, rotatingNode{name: name, controlPlane: poolOf(m) == controlPlanePool, leaving: !member || leaving(m) || m.DeletionTimestamp != nil})
		}
	}
	slices.SortFunc(shown, func(a, b rotatingNode) int { return pick(a.name < b.name, -1, 1) })
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range shown {
		n := &shown[i]
		if m := c.machines[n.name]; n.leaving || !installed(m) || !running(m) {
			continue
		}
		group.Go(func() error {
			node, _ := c.node(n.name)
			r.look(ctx, c.keys, addressOf(c.machines[n.name]), c.plan.localPort(), node.ready, n)
			return nil
		})
	}
	_ = group.Wait()
	return shown
}

// look asks a node, as a client of the present and of the next authorities.
func (r *rotation) look(ctx context.Context, k *keys, address string, port int32, nodeReady bool, n *rotatingNode) {
	kubelet := false
	read := func(ctx context.Context, node *client.Client) error {
		active, err := safe.StateGetByID[*resources.MachineConfig](ctx, node.COSI, resources.ActiveID)
		if err != nil {
			return err
		}
		changed, err := k.withAuthorities(active.Provider())
		if err != nil {
			return err
		}
		n.current = changed == nil
		kubelet = serviceHealthy(ctx, node, "kubelet")
		return nil
	}
	served, err := askTalos(ctx, address, r.talos.next, read)
	if n.talos.acceptsNext = err == nil; !n.talos.acceptsNext {
		served, err = askTalos(ctx, address, r.talos.present, read)
		n.talos.acceptsPresent = err == nil
	} else {
		_, err = askTalos(ctx, address, r.talos.present, func(context.Context, *client.Client) error { return nil })
		n.talos.acceptsPresent = err == nil
	}
	n.answers = n.talos.acceptsNext || n.talos.acceptsPresent
	n.talos.servesNext = served != nil && served.CheckSignatureFrom(r.talos.next.authorities[0]) == nil
	n.ready = kubelet && nodeReady
	if n.controlPlane {
		host := net.JoinHostPort(address, strconv.Itoa(int(port)))
		served, n.kubernetes.acceptsNext = askKubernetes(ctx, host, r.kubernetes.next)
		_, n.kubernetes.acceptsPresent = askKubernetes(ctx, host, r.kubernetes.present)
		n.kubernetes.servesNext = served != nil && served.CheckSignatureFrom(r.kubernetes.next.authorities[0]) == nil
		n.answers = n.answers && (n.kubernetes.acceptsNext || n.kubernetes.acceptsPresent || n.current)
	}
}

// askTalos calls a node, and returns the certificate that it serves.
func askTalos(ctx context.Context, address string, a *access, call func(context.Context, *client.Client) error) (*stdx509.Certificate, error) {
	var served *stdx509.Certificate
	config := a.config()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		served = state.PeerCertificates[0]
		return nil
	}
	ctx, node, end, err := dial(ctx, address, config, dialTimeout)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := node.Version(ctx); err != nil {
		return nil, fmt.Errorf("read version of %s: %w", address, err)
	}
	return served, call(ctx, node)
}

// askKubernetes calls an API server, and returns the certificate that it serves, and whether it
// accepts the client. Nobody else may list nodes.
func askKubernetes(ctx context.Context, host string, a *access) (*stdx509.Certificate, bool) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	through := &http.Transport{TLSClientConfig: a.config(), DialContext: outbound.FromEnvironment().DialContext}
	defer through.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/api/v1/nodes?limit=1", nil)
	if err != nil {
		return nil, false
	}
	res, err := (&http.Client{Transport: through, CheckRedirect: outbound.Stay}).Do(req)
	if err != nil {
		return nil, false
	}
	defer func() { _ = res.Body.Close() }()
	return res.TLS.PeerCertificates[0], res.StatusCode == http.StatusOK
}

// serviceHealthy reports whether a service of a node runs and is well.
func serviceHealthy(ctx context.Context, node *client.Client, name string) bool {
	info, err := node.ServiceInfo(ctx, name)
	return err == nil && len(info) > 0 && info[0].Service.GetState() == "Running" && info[0].Service.GetHealth().GetHealthy()
}

// change gives nodes the authorities that the keys have in their phase, and nothing else. A
// node that does not answer is asked again by the next look.
func (r *rotation) change(ctx context.Context, k *keys, addresses map[string]string) error {
	var group errgroup.Group
	for name, address := range addresses {
		group.Go(func() error {
			var refused fault
			for _, client := range []*access{r.talos.next, r.talos.present} {
				_, err := askTalos(ctx, address, client, k.changeNode)
				if errors.As(err, &refused) {
					return fault{refused.reason, fmt.Sprintf("node %s: %s", name, refused.message)}
				}
				if err == nil {
					break
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// changeNode gives a node the authorities of the phase in the configuration that it runs.
// Talos takes them without a reboot.
func (k *keys) changeNode(ctx context.Context, node *client.Client) error {
	active, err := safe.StateGetByID[*resources.MachineConfig](ctx, node.COSI, resources.ActiveID)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	changed, err := k.withAuthorities(active.Provider())
	if err != nil || changed == nil {
		return err
	}
	err = applyIn(ctx, node, changed, machine.ApplyConfigurationRequest_NO_REBOOT)
	if status.Code(err) == codes.InvalidArgument {
		return fault{"RotationRefused", "it does not take other authorities: " + status.Convert(err).Message()}
	}
	return err
}

// credentialsServe reports whether the Secrets that people and other functions use serve in the
// phase that the rotation is in.
func (c *cluster) credentialsServe(now time.Time) bool {
	return kubeconfigServes(c.kubeconfig, c.Status.Endpoint, c.keys, now)
}

// addressesOf returns the addresses of some nodes, by name.
func (c *cluster) addressesOf(names []string) map[string]string {
	addresses := map[string]string{}
	for _, name := range names {
		addresses[name] = addressOf(c.machines[name])
	}
	return addresses
}

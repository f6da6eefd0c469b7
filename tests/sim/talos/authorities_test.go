package talos_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/tests/sim/talos"
)

// otherAuthorities returns the rack's secrets with other authorities of the Talos API and of
// Kubernetes.
func (r *rack) otherAuthorities() *secrets.Bundle {
	r.t.Helper()
	next := *r.bundle
	certs := *next.Certs
	next.Certs = &certs
	api, err := secrets.NewTalosCA(time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	kubernetes, err := secrets.NewKubernetesCA(time.Now(), config.TalosVersion1_13)
	if err != nil {
		r.t.Fatal(err)
	}
	certs.OS = &x509.PEMEncodedCertificateAndKey{Crt: api.CrtPEM, Key: api.KeyPEM}
	certs.K8s = &x509.PEMEncodedCertificateAndKey{Crt: kubernetes.CrtPEM, Key: kubernetes.KeyPEM}
	return &next
}

// accepting returns a configuration that also accepts the authorities of a bundle.
func (r *rack) accepting(data []byte, b *secrets.Bundle) []byte {
	r.t.Helper()
	cfg, err := configloader.NewFromBytes(data)
	if err == nil {
		cfg, err = cfg.PatchV1Alpha1(func(c *v1alpha1.Config) error {
			c.MachineConfig.MachineAcceptedCAs = []*x509.PEMEncodedCertificate{{Crt: b.Certs.OS.Crt}}
			c.ClusterConfig.ClusterAcceptedCAs = []*x509.PEMEncodedCertificate{{Crt: b.Certs.K8s.Crt}}
			return nil
		})
	}
	if err == nil {
		data, err = cfg.Bytes()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// reconfigure applies a configuration without a reboot, as an administrator with a certificate of one
// bundle who trusts the authorities of two.
func (r *rack) reconfigure(n int, by, other *secrets.Bundle, data []byte) {
	r.t.Helper()
	_, err := r.between(n, by, other).ApplyConfiguration(r.t.Context(), &machineapi.ApplyConfigurationRequest{Data: data, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT})
	if err != nil {
		r.t.Fatal(err)
	}
}

// between returns the client of an administrator with a certificate of one bundle who trusts the
// authorities of two.
func (r *rack) between(n int, by, other *secrets.Bundle) *client.Client {
	r.t.Helper()
	cert, err := by.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.dial(client.WithConfig(clientconfig.NewConfig("sim", []string{r.addr(n)}, slices.Concat(by.Certs.OS.Crt, other.Certs.OS.Crt), cert)))
}

func answers(c *client.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := c.Version(ctx)
		return err
	}
}

// TestAuthoritiesAreSwapped replaces the authorities of a control plane before its worker accepts the
// new ones. The worker's kubelet is silent until the worker accepts them.
func TestAuthoritiesAreSwapped(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 1)
	old, next := r.bundle, r.otherAuthorities()
	plane := func(b *secrets.Bundle) []byte { return r.configFrom(b, machine.TypeControlPlane, r.hostname("cp-2")) }
	worker := func(b *secrets.Bundle) []byte { return r.configFrom(b, machine.TypeWorker, r.hostname("worker-3")) }

	r.reconfigure(2, old, next, r.accepting(plane(next), old))
	if err := answers(r.client(2))(t.Context()); err == nil || !strings.Contains(err.Error(), "x509") {
		t.Errorf("a client that trusts only the old authority accepts the new one: %v", err)
	}
	r.bundle = next
	r.nodesReady(1)
	r.reconfigure(3, old, next, r.accepting(worker(next), old))
	r.nodesReady(2)

	r.reconfigure(2, next, old, plane(next))
	r.nodesReady(1)
	r.reconfigure(3, next, old, worker(next))
	r.nodesReady(2)
	for _, n := range []int{2, 3} {
		r.eventually("the new authority is accepted", answers(r.client(n)))
		if err := answers(r.between(n, old, next))(t.Context()); err == nil {
			t.Errorf("machine %d accepts a certificate of the old authority", n)
		}
	}
}

// TestWorkerAcceptsAsItsControlPlane changes what a worker accepts before its control plane: in Talos
// a worker accepts the authorities that the control plane sends with its certificate.
func TestWorkerAcceptsAsItsControlPlane(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 1)
	old, next := r.bundle, r.otherAuthorities()
	r.reconfigure(3, old, next, r.accepting(r.config(machine.TypeWorker, r.hostname("worker-3")), next))
	time.Sleep(100 * time.Millisecond) // the worker requests another certificate
	r.eventually("the worker answers", answers(r.client(3)))
	if err := answers(r.between(3, next, old))(t.Context()); err == nil {
		t.Error("the worker accepts an authority that its control plane does not accept")
	}
}

// TestAuthorityForPods checks which authority pods trust: Talos publishes the authority that signs on
// the control plane, and none that it only accepts.
func TestAuthorityForPods(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 0)
	old, next := r.bundle, r.otherAuthorities()
	trusted := func(want *secrets.Bundle) {
		t.Helper()
		k := r.kube()
		r.eventually("pods trust the authority", func(ctx context.Context) error {
			root, err := k.CoreV1().ConfigMaps("kube-system").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err == nil && root.Data["ca.crt"] != string(want.Certs.K8s.Crt) {
				err = errors.New("pods trust another authority")
			}
			return err
		})
	}
	plane := func(b *secrets.Bundle) []byte { return r.configFrom(b, machine.TypeControlPlane, r.hostname("cp-2")) }
	r.reconfigure(2, old, next, r.accepting(plane(old), next))
	trusted(old)
	r.reconfigure(2, old, next, r.accepting(plane(next), old))
	r.bundle = next
	trusted(next)
}

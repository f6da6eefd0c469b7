package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Secrets of a cluster, by what their names end in, and their keys.
const (
	pkiSecret         = "talos-secrets"
	pkiKey            = "secrets.yaml"
	talosconfigSecret = "talosconfig"
	talosconfigKey    = "talosconfig"
	kubeconfigSecret  = "kubeconfig"
	kubeconfigKey     = "kubeconfig"
)

// Lifetimes of client certificates: of those that a delivery makes for itself, and
// of the one in the talosconfig that people use.
const (
	ownCertificate    = time.Hour
	peopleCertificate = 365 * 24 * time.Hour
)

// newBundle makes the keys, certificates and tokens of a cluster. It takes about
// a second of CPU, nearly all of it for the RSA key by which service accounts are
// signed.
func newBundle(now time.Time, contract *talosconfig.VersionContract) (*secrets.Bundle, error) {
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(now), contract)
	if err != nil {
		return nil, fmt.Errorf("generate secrets: %w", err)
	}
	return bundle, nil
}

// decodeBundle reads what encodeBundle wrote, which is also what talosctl gen
// secrets writes.
func decodeBundle(data []byte) (*secrets.Bundle, error) {
	bundle := &secrets.Bundle{}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(bundle); err != nil {
		return nil, errors.New("decode secrets: the document is damaged") // the cause could quote a secret
	}
	bundle.Clock = secrets.NewClock()
	if err := bundle.Validate(); err != nil {
		return nil, fmt.Errorf("decode secrets: %w", err)
	}
	return bundle, nil
}

func encodeBundle(bundle *secrets.Bundle) ([]byte, error) {
	data, err := yaml.Marshal(bundle)
	if err != nil {
		return nil, fmt.Errorf("encode secrets: %w", err)
	}
	return data, nil
}

// createKeys makes the keys of a cluster. Where somebody was faster, it returns
// theirs.
func (f *function) createKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster, contract *talosconfig.VersionContract) (*keys, error) {
	bundle, err := newBundle(f.now(), contract)
	if err != nil {
		return nil, err
	}
	data, err := encodeBundle(bundle)
	if err != nil {
		return nil, err
	}
	err = f.kube.Create(ctx, keysSecret(kc, pkiSecret, wantedRotation(kc), data))
	if kube.AlreadyExists(err) {
		there, unread := f.readKeys(ctx, kc)
		if unread != nil || there != nil {
			return there, unread
		}
	}
	return &keys{present: bundle, rotated: wantedRotation(kc)}, err // of one that was there and is gone too: it is tried again
}

// keepSecret makes one of a cluster's other Secrets, unless one is there that
// serves. One that does not is replaced where a new one can be had.
func (f *function) keepSecret(ctx context.Context, kc *v1alpha1.KubernetesCluster, name, key string, serves func([]byte) bool, data func() ([]byte, error)) ([]byte, error) {
	secret := &corev1.Secret{}
	err := f.kube.Get(ctx, kc.Namespace, secretName(kc, name), secret)
	if err == nil {
		err = belongs(secret, kc)
	}
	if err != nil && !kube.NotFound(err) {
		return nil, err
	}
	missing := err != nil
	if !missing && serves(secret.Data[key]) {
		return secret.Data[key], nil
	}
	content, err := data()
	switch {
	case err != nil && missing:
		return nil, err
	case !missing && (err != nil || !serves(content)):
		return secret.Data[key], nil // the old one is good for half of its lifetime yet
	case !missing:
		return content, f.kube.Merge(ctx, secret, map[string]any{"data": map[string][]byte{key: content}})
	}
	err = f.kube.Create(ctx, secretOf(kc, name, key, content))
	if err != nil && !kube.AlreadyExists(err) {
		return nil, err
	}
	return content, nil
}

func secretName(kc *v1alpha1.KubernetesCluster, name string) string { return kube.Name(kc.Name, name) }

func secretOf(kc *v1alpha1.KubernetesCluster, name, key string, data []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kc.Namespace, Name: secretName(kc, name), Labels: labelsOf(kc),
			OwnerReferences: kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		},
		Data: map[string][]byte{key: data},
	}
}

// belongs refuses what was made for another cluster of the same name.
func belongs(obj kube.Object, kc *v1alpha1.KubernetesCluster) error {
	if metav1.IsControlledBy(obj, kc) {
		return nil
	}
	return fault{"NameTaken", fmt.Sprintf("%T %s was not made for this cluster: delete it, or give the cluster another name", obj, obj.GetName())}
}

// access is how a delivery proves to nodes of a cluster who it is, and by whose certificates
// it knows them.
type access struct {
	authorities []*x509.Certificate
	certificate tls.Certificate
}

// accessTo makes a client certificate for as long as a delivery may need it. Nodes are known
// also by the authorities of the other bundles.
func accessTo(bundle *secrets.Bundle, others ...*secrets.Bundle) (*access, error) {
	pair, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), ownCertificate)
	if err != nil {
		return nil, fmt.Errorf("make client certificate: %w", err)
	}
	certificate, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("make client certificate: %w", err)
	}
	a := &access{certificate: certificate}
	for _, b := range append([]*secrets.Bundle{bundle}, others...) {
		authority, err := b.Certs.OS.GetCert()
		if err != nil {
			return nil, errors.New("make client certificate: the cluster's authority is no certificate")
		}
		a.authorities = append(a.authorities, authority)
	}
	return a, nil
}

func (a *access) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, authority := range a.authorities {
		pool.AddCert(authority)
	}
	return pool
}

// signed reports whether an authority of the cluster has signed a certificate.
func (a *access) signed(c *x509.Certificate) bool {
	return slices.ContainsFunc(a.authorities, func(authority *x509.Certificate) bool { return c.CheckSignatureFrom(authority) == nil })
}

func (a *access) config() *tls.Config {
	return &tls.Config{RootCAs: a.pool(), Certificates: []tls.Certificate{a.certificate}, MinVersion: tls.VersionTLS12}
}

// renderTalosconfig writes the file that talosctl reads. Its endpoints are the
// addresses of nodes: a virtual address is not there when it is needed most.
func renderTalosconfig(cluster string, k *keys, endpoints []string) ([]byte, error) {
	pair, err := k.issuer().GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), peopleCertificate)
	if err != nil {
		return nil, fmt.Errorf("make talosconfig: %w", err)
	}
	file := config.NewConfig(cluster, endpoints, k.trustedTalos(), pair)
	for _, c := range file.Contexts {
		c.Nodes = endpoints
	}
	data, err := file.Bytes()
	if err != nil {
		return nil, fmt.Errorf("make talosconfig: %w", err)
	}
	return data, nil
}

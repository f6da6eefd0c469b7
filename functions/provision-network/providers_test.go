package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/provision-network/provider"
	sim "github.com/vitistack/stack/tests/sim/nam"
)

// configured returns a provider with environment variables.
func configured(provider string, values map[string]string, secret map[string][]byte) provider.Interface {
	return config{
		getenv: func(name string) string { return values[name] },
		secret: func(namespace, name string) (map[string][]byte, error) {
			if secret == nil || namespace != "vitistack-system" || name != "nam-tls" {
				return nil, errors.New("read secrets " + namespace + "/" + name + ": not found")
			}
			return secret, nil
		},
	}.providers()[provider]
}

func TestConfigurationIsWrong(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values map[string]string
		secret map[string][]byte
		reason string
		says   string
	}{
		"Nothing":     {nil, nil, "ProviderNotConfigured", "set NAM_URL"},
		"NoScheme":    {map[string]string{"NAM_URL": "nam.example.com"}, nil, "ProviderMisconfigured", "NAM_URL"},
		"Credentials": {map[string]string{"NAM_URL": "https://a:s3cret@nam.example.com"}, nil, "ProviderMisconfigured", "NAM_URL"},
		"Timeout":     {map[string]string{"NAM_URL": "https://nam.example.com", "NAM_TIMEOUT_SECONDS": "soon"}, nil, "ProviderMisconfigured", "NAM_TIMEOUT_SECONDS"},
		"NoSecret":    {map[string]string{"NAM_URL": "https://nam.example.com", "NAM_TLS_SECRET_NAME": "other"}, nil, "ProviderMisconfigured", "NAM_TLS_SECRET_NAME"},
		"NoPEM":       {map[string]string{"NAM_URL": "https://nam.example.com", "NAM_TLS_SECRET_NAME": "nam-tls"}, map[string][]byte{"ca.crt": []byte("x")}, "ProviderMisconfigured", "CERTIFICATE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := configured("nam", tc.values, tc.secret).Provide(t.Context(), someNetwork(uidA, v1alpha2.NetworkNamespaceSpec{}))
			f := asError(t, err)
			if f.Reason != tc.reason || !f.Permanent || !strings.Contains(f.Message, tc.says) || strings.Contains(f.Message, "s3cret") {
				t.Errorf("got %+v, want %s with %q in it", f, tc.reason, tc.says)
			}
		})
	}
}

// certificate issues a certificate for 127.0.0.1, signed by an authority or by itself.
func certificate(t *testing.T, by *tls.Certificate) (pair tls.Certificate, certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: by == nil,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return pair, certPEM, keyPEM
}

// TestMutualTLS connects to a manager that requires a certificate and a token.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	authority, ca, _ := certificate(t, nil)
	own, _, _ := certificate(t, &authority)
	_, cert, key := certificate(t, &authority)
	_, strange, strangeKey := certificate(t, nil)
	manager, err := sim.New(sim.Options{Token: namToken})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	server := httptest.NewUnstartedServer(manager)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	for name, tc := range map[string]struct {
		secret map[string][]byte
		reason string
	}{
		"Both":          {map[string][]byte{"ca.crt": ca, "tls.crt": cert, "tls.key": key}, ""},
		"NoCertificate": {map[string][]byte{"ca.crt": ca}, "SourceUntrusted"},
		"Stranger":      {map[string][]byte{"ca.crt": ca, "tls.crt": strange, "tls.key": strangeKey}, "SourceUntrusted"},
		"NoAuthority":   {map[string][]byte{"tls.crt": cert, "tls.key": key}, "SourceUntrusted"},
	} {
		t.Run(name, func(t *testing.T) {
			from := configured("nam", map[string]string{"NAM_URL": server.URL + "/v1", "NAM_TOKEN": namToken + "\n", "NAM_TLS_SECRET_NAME": "nam-tls"}, tc.secret)
			_, err := from.Provide(t.Context(), someNetwork(uidA, v1alpha2.NetworkNamespaceSpec{}))
			if reasonIn(err) != tc.reason {
				t.Errorf("got %v, want %q", err, tc.reason)
			}
		})
	}
}

// TestSecretIsCreatedLater starts the function before the Secret of the provider's certificates exists, or is valid. The provider is used once it is.
func TestSecretIsCreatedLater(t *testing.T) {
	t.Parallel()
	authority, ca, _ := certificate(t, nil)
	own, _, _ := certificate(t, &authority)
	manager, err := sim.New(sim.Options{Token: namToken})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(manager)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	server.StartTLS()
	t.Cleanup(server.Close)
	values := map[string]string{"NAM_URL": server.URL + "/v1", "NAM_TOKEN": namToken, "NAM_TLS_SECRET_NAME": "nam-tls"}
	secret, missing := map[string][]byte(nil), errors.New("read secrets vitistack-system/nam-tls: not found")
	f := &function{providers: config{
		getenv: func(name string) string { return values[name] },
		secret: func(string, string) (map[string][]byte, error) { return secret, missing },
	}.providers()}
	for _, change := range []func(){func() {}, func() { secret, missing = map[string][]byte{"ca.crt": []byte("x")}, nil }} {
		change()
		if _, err := f.provider("nam").Provide(t.Context(), someNetwork(uidA, asks("nam"))); reasonIn(err) != "ProviderMisconfigured" {
			t.Errorf("got %v, want ProviderMisconfigured", err)
		}
	}
	secret = map[string][]byte{"ca.crt": ca}
	if _, err := f.provider("nam").Provide(t.Context(), someNetwork(uidA, asks("nam"))); err != nil {
		t.Errorf("the Secret is correct now: %v", err)
	}
	if _, isServer := f.provider("nam").(provider.Server); !isServer {
		t.Error("the provider is not a Server, so that segments are not looked up")
	}
}

// TestRights serves networks with exactly the rights of the shipped role.
func TestRights(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	user := name + "-in-" + w.namespace
	w.grantShippedRole(user)
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	limited := w.client(config)
	deadline := time.Now().Add(time.Minute)
	for apierrors.IsForbidden(limited.List(t.Context(), w.namespace, "", &v1alpha1.KubernetesClusterList{})) && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	w.f.kube = limited
	w.network("net", asks("nam"))
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	nc := w.configuration("vm", "net", "", v1alpha1.InterfaceStatus{})
	w.must(w.deliver("NetworkConfiguration", "vm", events.TypeRefUpdate))
	w.delete(w.get("net"))
	w.expect(w.reconcile("net"), "Deleting", reasonInUse)
	w.delete(nc)
	w.must(w.deliver("NetworkConfiguration", "vm", events.TypeRefDelete))
	if w.get("net") != nil {
		t.Error("the network must be deleted")
	}
}

func (w *env) grantShippedRole(user string) {
	w.t.Helper()
	client, err := kube.New(w.config, name, kube.Kinds(rbacv1.SchemeGroupVersion, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}))
	w.must(err)
	text, err := os.ReadFile("../../knative/provision-network.yaml")
	w.must(err)
	for _, document := range strings.Split(string(text), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		w.must(yaml.Unmarshal([]byte(document), role))
		if role.Kind != "ClusterRole" {
			continue
		}
		role.Name = user
		w.must(client.Create(w.t.Context(), role))
		w.must(client.Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		}))
		return
	}
	w.t.Fatal("knative/provision-network.yaml has no ClusterRole")
}

// TestRegistry compares the providers with the registry of backends, which documentation and metrics
// read.
func TestRegistry(t *testing.T) {
	t.Parallel()
	got := append(slices.Collect(maps.Keys(registry)), backend.External)
	var want []string
	for _, k := range backend.In(backend.LayerNetwork) {
		want = append(want, k.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("providers are %v, the registry of backends has %v: add the missing ones", got, want)
	}
}

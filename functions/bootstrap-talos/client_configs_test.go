package main

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	talosx509 "github.com/siderolabs/crypto/x509"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestDeadClusterIsForced deletes a cluster whose machine cannot be deleted by its provider. A
// finalizer that remains plays the missing provider.
func TestDeadClusterIsForced(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	const held = "example.com/held"
	hold := func(finalizers ...string) {
		t.Helper()
		if err := s.kube.Merge(t.Context(), s.machine("shop-pool-0"), map[string]any{"metadata": map[string]any{"finalizers": finalizers}}); err != nil {
			t.Fatal(err)
		}
	}
	hold(v1alpha1.FinalizerMachine, held)
	kc := s.get("shop")
	kc.Finalizers = append(kc.Finalizers, held) // keeps the last status readable
	if err := s.kube.Merge(t.Context(), kc, map[string]any{"metadata": map[string]any{"finalizers": kc.Finalizers}}); err != nil {
		t.Fatal(err)
	}
	if err := s.kube.Delete(t.Context(), kc); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("shop", "Deleting", "shop-pool-0", v1alpha1.AnnotationForce)
	s.secret("shop-talos-secrets") // the keys are kept while they may be needed
	if err := s.kube.Merge(t.Context(), s.get("shop"), map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationForce: "true"}}}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the cluster is deleted by force", func() (bool, string) {
		f := s.get("shop").Finalizers
		return !slices.Contains(f, v1alpha1.FinalizerCluster), strings.Join(f, " ")
	})
	c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionForced)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "MachinesSkipped" || !strings.Contains(c.Message, "shop-pool-0") {
		t.Errorf("condition Forced: %v, want one that names shop-pool-0", c)
	}
	if err := s.kube.Get(t.Context(), s.namespace, "shop-talos-secrets", &corev1.Secret{}); !kube.NotFound(err) {
		t.Errorf("the keys are left: %v", err)
	}
	if s.machine("shop-pool-0").DeletionTimestamp == nil {
		t.Error("the deletion of the machine was not requested")
	}
	hold()
}

// TestCredentialsAreRenewed replaces the certificates of kubeconfig and talosconfig by ones that are
// several months old.
func TestCredentialsAreRenewed(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop")
	keys := s.secret("shop-talos-secrets").Data[pkiKey]
	certs := s.authoritiesOf("shop").Present.Certs
	for _, tc := range []struct {
		reason  string
		age     time.Duration
		renewed bool
	}{
		{"less than half of its lifetime has passed", talos.TalosconfigLifetime/2 - time.Hour, false},
		{"more than half of its lifetime has passed", talos.TalosconfigLifetime/2 + time.Minute, true},
		{"it has expired", talos.TalosconfigLifetime + time.Hour, true},
	} {
		old := map[string][]byte{}
		for name, data := range map[string][]byte{
			talosconfigKey: agedTalosconfig(t, s.secret("shop-talosconfig").Data[talosconfigKey], aged(t, certs.OS, tc.age)),
			kubeconfigKey:  agedKubeconfig(t, s.secret("shop-kubeconfig").Data[kubeconfigKey], aged(t, certs.K8s, tc.age)),
		} {
			old[name] = data
			if err := s.kube.Merge(t.Context(), s.secret("shop-"+name), map[string]any{"data": map[string][]byte{name: data}}); err != nil {
				t.Fatal(err)
			}
		}
		s.reconcile("shop")
		for name, data := range old {
			if renewed := !bytes.Equal(s.secret("shop-" + name).Data[name], data); renewed != tc.renewed {
				t.Errorf("%s, %s: renewed %t, want %t", tc.reason, name, renewed, tc.renewed)
			}
		}
	}
	if ready, _ := s.nodes("shop"); len(ready) != 1 {
		t.Errorf("nodes in the new kubeconfig: %v", ready)
	}
	if !bytes.Equal(s.secret("shop-talos-secrets").Data[pkiKey], keys) {
		t.Error("the cluster's keys were replaced")
	}
}

func agedTalosconfig(t *testing.T, data, certificate []byte) []byte {
	t.Helper()
	file, err := clientconfig.FromBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	file.Contexts[file.Context].Crt = base64.StdEncoding.EncodeToString(certificate)
	if data, err = file.Bytes(); err != nil {
		t.Fatal(err)
	}
	return data
}

func agedKubeconfig(t *testing.T, data, certificate []byte) []byte {
	t.Helper()
	file, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range file.AuthInfos {
		user.ClientCertificateData = certificate
	}
	if data, err = clientcmd.Write(*file); err != nil {
		t.Fatal(err)
	}
	return data
}

// aged returns a client certificate that an authority signed the given time ago, with the lifetime of
// client configurations.
func aged(t *testing.T, authority *talosx509.PEMEncodedCertificateAndKey, age time.Duration) []byte {
	t.Helper()
	ca, err := talosx509.NewCertificateAuthorityFromCertificateAndKey(authority)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Now().Add(-age)
	pair, err := talosx509.NewKeyPair(ca, talosx509.NotBefore(from), talosx509.NotAfter(from.Add(talos.TalosconfigLifetime)))
	if err != nil {
		t.Fatal(err)
	}
	return pair.CrtPEM
}

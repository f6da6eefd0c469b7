package talos

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"k8s.io/client-go/util/keyutil"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// TestServiceAccountKey reads the key that signs service account tokens as kube-apiserver and
// kube-controller-manager do, and the whole bundle as Talos does.
func TestServiceAccountKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		key    v1alpha1.ServiceAccountKeyType
		right  func(any) bool
	}{
		"ECDSA": {"kube-apiserver signs with ES256, which needs P-256", v1alpha1.ServiceAccountKeyECDSA, func(key any) bool {
			k, ok := key.(*ecdsa.PrivateKey)
			return ok && k.Curve == elliptic.P256()
		}},
		"RSA": {"kube-apiserver signs with RS256", v1alpha1.ServiceAccountKeyRSA, func(key any) bool {
			k, ok := key.(*rsa.PrivateKey)
			return ok && k.N.BitLen() == 4096
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bundle, err := NewBundle(time.Now(), config.TalosVersion1_13, tc.key)
			if err != nil {
				t.Fatal(err)
			}
			key, err := keyutil.ParsePrivateKeyPEM(bundle.Certs.K8sServiceAccount.Key)
			if err != nil || !tc.right(key) {
				t.Errorf("%s: got a %T (%v)", tc.reason, key, err)
			}
			text, err := EncodeBundle(bundle)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := DecodeBundle(text); err != nil {
				t.Errorf("Talos refuses the bundle: %v", err)
			}
			if bundle.Secrets.SecretboxEncryptionSecret == "" {
				t.Error("the bundle has no key for the encryption of Secrets at rest, which versions of Talos after 1.2 need")
			}
		})
	}
}

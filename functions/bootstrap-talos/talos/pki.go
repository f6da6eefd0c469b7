package talos

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	talosx509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// WithNewAuthorities returns an encoded copy of a bundle with new authorities of the Talos API
// and of Kubernetes.
func WithNewAuthorities(present *secrets.Bundle, now time.Time, contract *config.VersionContract) ([]byte, error) {
	api, err := secrets.NewTalosCA(now)
	if err != nil {
		return nil, fmt.Errorf("generate authority of the Talos API: %w", err)
	}
	kubernetes, err := secrets.NewKubernetesCA(now, contract)
	if err != nil {
		return nil, fmt.Errorf("generate authority of Kubernetes: %w", err)
	}
	next, certs := *present, *present.Certs
	next.Certs = &certs
	certs.OS = &talosx509.PEMEncodedCertificateAndKey{Crt: api.CrtPEM, Key: api.KeyPEM}
	certs.K8s = &talosx509.PEMEncodedCertificateAndKey{Crt: kubernetes.CrtPEM, Key: kubernetes.KeyPEM}
	return EncodeBundle(&next)
}

// NewBundle generates the keys, certificates and tokens of a cluster. The RSA key that signs
// service account tokens takes nearly a second of CPU, and an ECDSA key of the curve P-256 none to
// speak of. kube-apiserver accepts both.
func NewBundle(now time.Time, contract *config.VersionContract, key v1alpha1.ServiceAccountKeyType) (*secrets.Bundle, error) {
	if key != v1alpha1.ServiceAccountKeyRSA {
		// Talos up to 1.6 has an ECDSA key. Nothing else in the bundle differs from that of later versions.
		contract = config.TalosVersion1_6
	}
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(now), contract)
	if err != nil {
		return nil, fmt.Errorf("generate secrets: %w", err)
	}
	return bundle, nil
}

// DecodeBundle parses what EncodeBundle has written, which is the format of talosctl gen
// secrets.
func DecodeBundle(data []byte) (*secrets.Bundle, error) {
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

// EncodeBundle returns a bundle as YAML.
func EncodeBundle(bundle *secrets.Bundle) ([]byte, error) {
	data, err := yaml.Marshal(bundle)
	if err != nil {
		return nil, fmt.Errorf("encode secrets: %w", err)
	}
	return data, nil
}

// Encode returns a configuration as it is sent to a node.
func Encode(p config.Provider) ([]byte, error) {
	return p.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}

// EncodeRedacted returns a configuration without secrets.
func EncodeRedacted(p config.Provider) ([]byte, error) {
	return Encode(p.RedactSecrets("REDACTED"))
}

package talos

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	talosx509 "github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
)

// WithNewAuthorities is a set of keys with other authorities of the Talos API and of
// Kubernetes, in the form in which it is kept.
func WithNewAuthorities(present *secrets.Bundle, now time.Time, contract *talosconfig.VersionContract) ([]byte, error) {
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

// NewBundle makes the keys, certificates and tokens of a cluster. It takes about
// a second of CPU, nearly all of it for the RSA key by which service accounts are
// signed.
func NewBundle(now time.Time, contract *talosconfig.VersionContract) (*secrets.Bundle, error) {
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(now), contract)
	if err != nil {
		return nil, fmt.Errorf("generate secrets: %w", err)
	}
	return bundle, nil
}

// DecodeBundle reads what encodeBundle wrote, which is also what talosctl gen
// secrets writes.
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

func EncodeBundle(bundle *secrets.Bundle) ([]byte, error) {
	data, err := yaml.Marshal(bundle)
	if err != nil {
		return nil, fmt.Errorf("encode secrets: %w", err)
	}
	return data, nil
}

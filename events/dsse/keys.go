package dsse

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Names of the Secret and the ConfigMap, in the namespace of the stack, that keep the private key and the public keys.
// The name of each entry is the time at which the key was generated, in the format KeyTime, followed by KeySuffix.
const (
	SecretName    = "event-signing-key"
	ConfigMapName = "event-signing-keys"
	KeyTime       = "20060102-150405"
	KeySuffix     = ".pem"
)

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
)

// NewKey generates a key.
func NewKey() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	return key, nil
}

// FormatPrivate is a key in PKCS #8, PEM.
func FormatPrivate(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, errors.New("a signing key cannot be written") // the cause could quote the key
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der}), nil
}

// ParsePrivate reads what FormatPrivate has written. The error does not quote it.
func ParsePrivate(text []byte) (ed25519.PrivateKey, error) {
	if block, _ := pem.Decode(text); block != nil {
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if key, ok := key.(ed25519.PrivateKey); ok {
				return key, nil
			}
		}
	}
	return nil, errors.New("not an Ed25519 private key in PKCS #8, PEM")
}

// FormatPublic is the public half of a key in PKIX, PEM.
func FormatPublic(key ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: der}), nil
}

// ParsePublicKeys reads the keys of the ConfigMap ConfigMapName. It leaves out what is no key.
func ParsePublicKeys[T ~string | ~[]byte](data map[string]T) []ed25519.PublicKey {
	var keys []ed25519.PublicKey
	for _, text := range data {
		if key, err := ParsePublic([]byte(text)); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// ParsePublic reads what FormatPublic has written.
func ParsePublic(text []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(text); block != nil {
		if key, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			if key, ok := key.(ed25519.PublicKey); ok {
				return key, nil
			}
		}
	}
	return nil, errors.New("not an Ed25519 public key in PKIX, PEM")
}

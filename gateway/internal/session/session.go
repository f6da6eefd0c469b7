// Package session seals the tokens that browsers hold instead of API keys. Only gateways with the same key can open a token, and a
// token expires.
package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Lifetime is the maximum lifetime of a session.
const Lifetime = 12 * time.Hour

// ErrInvalid is returned for a token that was not sealed with this key or has expired.
var ErrInvalid = errors.New("the session is not valid, or has ended")

const purpose = "vitistack session v1"

// KeySize is the size in bytes of the keys that seal sessions.
const KeySize = 32

// Seal returns the token of a session for the API key with this hash. key must have KeySize bytes.
func Seal(key []byte, hash [sha256.Size]byte, now time.Time) (string, error) {
	sealer, err := newSealer(key)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, sealer.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	text := binary.BigEndian.AppendUint64(hash[:], uint64(now.Add(Lifetime).Unix()))
	return base64.RawURLEncoding.EncodeToString(sealer.Seal(nonce, nonce, text, []byte(purpose))), nil
}

// Open returns the hash of the API key that a session was created with, and when the session ends, or ErrInvalid.
func Open(key []byte, token string, now time.Time) (hash [sha256.Size]byte, ends time.Time, err error) {
	sealer, err := newSealer(key)
	if err != nil {
		return hash, ends, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(sealed) < sealer.NonceSize() {
		return hash, ends, ErrInvalid
	}
	nonce, sealed := sealed[:sealer.NonceSize()], sealed[sealer.NonceSize():]
	text, err := sealer.Open(nil, nonce, sealed, []byte(purpose))
	if err != nil || len(text) != len(hash)+8 {
		return hash, ends, ErrInvalid
	}
	ends = time.Unix(int64(binary.BigEndian.Uint64(text[len(hash):])), 0)
	if !now.Before(ends) {
		return hash, ends, ErrInvalid
	}
	return [sha256.Size]byte(text), ends, nil
}

func newSealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal sessions: %w", err)
	}
	return cipher.NewGCM(block)
}

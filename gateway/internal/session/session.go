// Package session makes what a browser keeps instead of an API key. A token is sealed with a key that only the gateway
// has: it says nothing to its bearer, is of no use at any other gateway, and ends by itself.
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

// Lifetime is how long a session lasts at most.
const Lifetime = 12 * time.Hour

// ErrInvalid is returned for a token that was not sealed with this key, or has ended.
var ErrInvalid = errors.New("the session is not valid, or has ended")

const purpose = "vitistack session v1"

// KeySize is the size in bytes of the keys that seal sessions.
const KeySize = 32

// Seal makes the token of a session of whoever has the API key with this hash.
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

// Open returns the hash of the API key that a session was begun with.
func Open(key []byte, token string, now time.Time) (hash [sha256.Size]byte, err error) {
	sealer, err := newSealer(key)
	if err != nil {
		return hash, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(sealed) < sealer.NonceSize() {
		return hash, ErrInvalid
	}
	nonce, sealed := sealed[:sealer.NonceSize()], sealed[sealer.NonceSize():]
	text, err := sealer.Open(nil, nonce, sealed, []byte(purpose))
	if err != nil || len(text) != len(hash)+8 {
		return hash, ErrInvalid
	}
	if now.Unix() >= int64(binary.BigEndian.Uint64(text[len(hash):])) {
		return hash, ErrInvalid
	}
	return [sha256.Size]byte(text), nil
}

func newSealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal sessions: %w", err)
	}
	return cipher.NewGCM(block)
}

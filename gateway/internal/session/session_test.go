package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func TestSession(t *testing.T) {
	t.Parallel()
	key, other := bytes.Repeat([]byte{1}, KeySize), bytes.Repeat([]byte{2}, KeySize)
	hash, now := sha256.Sum256([]byte("secret")), time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	token, err := Seal(key, hash, now)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Seal(key, hash, now); again == token {
		t.Error("two sessions of one key have the same token")
	}
	if sealed, _ := base64.RawURLEncoding.DecodeString(token); bytes.Contains(sealed, hash[:]) {
		t.Error("the token contains the hash of the key")
	}
	changed := func(i int) string {
		sealed, _ := base64.RawURLEncoding.DecodeString(token)
		sealed[i] ^= 1
		return base64.RawURLEncoding.EncodeToString(sealed)
	}
	for _, tc := range []struct {
		name, reason string
		key          []byte
		token        string
		after        time.Duration
		valid        bool
	}{
		{"Fresh", "the session has just begun", key, token, 0, true},
		{"Late", "a session lasts for a working day", key, token, Lifetime - time.Second, true},
		{"Over", "a session expires", key, token, Lifetime, false},
		{"Rotated", "the gateway's key was rotated", other, token, 0, false},
		{"Empty", "there is no token", key, "", 0, false},
		{"APIKey", "an API key is no session token", key, "secret", 0, false},
		{"Short", "the token is truncated", key, token[:10], 0, false},
		{"Long", "the token is too long", key, token + token, 0, false},
		{"Nonce", "the nonce is changed", key, changed(0), 0, false},
		{"Hash", "the hash of another caller", key, changed(20), 0, false},
		{"Tag", "the authentication tag is changed", key, changed(67), 0, false},
		{"Alphabet", "the text is no base64", key, strings.Repeat("!", 80), 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, ends, err := Open(tc.key, tc.token, now.Add(tc.after))
			if (err == nil) != tc.valid || (tc.valid && (got != hash || !ends.Equal(now.Add(Lifetime).Truncate(time.Second)))) {
				t.Errorf("%s: %v, want valid %t", tc.reason, err, tc.valid)
			}
		})
	}
}

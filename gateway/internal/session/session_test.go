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
		t.Error("two sessions of one key are the same")
	}
	if sealed, _ := base64.RawURLEncoding.DecodeString(token); bytes.Contains(sealed, hash[:]) {
		t.Error("the token shows the hash of the key")
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
		{"Fresh", "it has just begun", key, token, 0, true},
		{"Late", "it lasts for a working day", key, token, Lifetime - time.Second, true},
		{"Over", "it ends by itself", key, token, Lifetime, false},
		{"Rotated", "the gateway's key is another", other, token, 0, false},
		{"Empty", "there is none", key, "", 0, false},
		{"APIKey", "an API key is no session", key, "secret", 0, false},
		{"Short", "a part of one", key, token[:10], 0, false},
		{"Long", "more than one", key, token + token, 0, false},
		{"Nonce", "changed at its beginning", key, changed(0), 0, false},
		{"Hash", "made another caller's", key, changed(20), 0, false},
		{"Tag", "changed at its end", key, changed(67), 0, false},
		{"Alphabet", "not of our alphabet", key, strings.Repeat("!", 80), 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := Open(tc.key, tc.token, now.Add(tc.after))
			if (err == nil) != tc.valid || (tc.valid && got != hash) {
				t.Errorf("%s: %v, want it to be valid: %t", tc.reason, err, tc.valid)
			}
		})
	}
}

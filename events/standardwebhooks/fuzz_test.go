package standardwebhooks

import (
	"testing"
	"time"
)

// FuzzVerify checks that only the signature of a message is accepted.
func FuzzVerify(f *testing.F) {
	now := time.Unix(1_700_000_000, 0)
	secret := Secret("0123456789abcdef0123456789abcdef")
	f.Add("m1", "1700000000", secret.Sign("m1", now, []byte("x")), []byte("y"), "whsec_AAAA")
	f.Add("m1", "+1700000000", "v1, v1,AA== v2,x", []byte("x"), "")
	f.Add("", "-9223372036854775808", "v1,", []byte{}, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3")
	f.Fuzz(func(t *testing.T, id, at, signatures string, body []byte, text string) {
		signed := id == "m1" && at == "1700000000" && string(body) == "x"
		if secret.Verify(id, at, signatures, body, now) == nil && !signed {
			t.Errorf("%q at %q is accepted with %q", id, at, signatures)
		}
		if s, err := ParseSecret(text); err == nil && len(s) < 24 {
			t.Errorf("%q is a secret", text)
		}
	})
}

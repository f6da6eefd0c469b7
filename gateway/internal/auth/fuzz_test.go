package auth

import "testing"

// FuzzKey parses any line of a key.
func FuzzKey(f *testing.F) {
	for _, text := range []string{"name sha256:00 read+write", "a key in plain text", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if key, _, err := parseKey(text, 0); err == nil && key.scopes == 0 {
			t.Errorf("the key of %q has no scope", text)
		}
	})
}

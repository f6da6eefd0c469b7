package talosconfig

import (
	"errors"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	current, err := Read([]byte("context: x\ncontexts:\n  x:\n    endpoints: [10.0.0.5]\n    ca: AA==\n    crt: AA==\n    key: AA==\n"))
	if err != nil || len(current.Endpoints) != 1 || string(current.Crt) != "\x00" {
		t.Errorf("got %+v, %v", current, err)
	}
	for _, text := range []string{"", "context: x\ncontexts:\n  x: null\n", "context: x\ncontexts:\n  y: {}\n", "contexts: [x]\n", "context: x\ncontexts:\n  x:\n    ca: no base64\n"} {
		if _, err := Read([]byte(text)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"", "context: x\n", "context: x\ncontexts: null\n", "context: x\ncontexts:\n  x: null\n", "context: x\ncontexts:\n  y: ~\n  x: {}\n", "context: x\ncontexts:\n  x: &a {}\n  y: *a\n",
		"context: x\ncontexts:\n  x:\n    endpoints: [10.0.0.5]\n    target: 10.0.0.5\n    ca: AA==\n    crt: AA==\n    key: AA==\n", "context: x\ncontexts:\n  x: []\n",
		"context: x\ncontexts:\n  <<: {x: null}\n", "context: x\ncontexts:\n  ? [x]\n  : null\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		current, err := Read(data)
		if (err == nil) != (current != nil) || (err != nil && !errors.Is(err, ErrDamaged)) {
			t.Errorf("%q: %v, %v", data, current, err)
		}
	})
}

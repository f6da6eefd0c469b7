package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestChangeBeforeFollow changes a file after Load and before Follow, as when a key is revoked while the gateway starts.
func TestChangeBeforeFollow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var loaded []string
	load := func(content []byte) error {
		loaded = append(loaded, string(content))
		return nil
	}
	write("revoked")
	if err := Load(path, load); err != nil {
		t.Fatal(err)
	}
	write("valid")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Follow(ctx, path, load, slog.New(slog.DiscardHandler))
	if last := loaded[len(loaded)-1]; last != "valid" {
		t.Errorf("loaded %q: the change is lost", loaded)
	}
}

// TestFollowNothing has neither a path nor a context that ends.
func TestFollowNothing(t *testing.T) {
	t.Parallel()
	Follow(t.Context(), "", func([]byte) error {
		t.Error("loaded without a path")
		return nil
	}, slog.New(slog.DiscardHandler))
}

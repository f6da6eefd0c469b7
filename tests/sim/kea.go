package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// serveKea runs a DHCP server, and configures the function kea-reserve for it: the
// real Kea where this machine has one, and otherwise a simulator of its control
// API. It writes down which of the two it is, which stays the same: what one has
// reserved the other does not know.
func serveKea(ctx context.Context, config *rest.Config, state string, plan *faults.Plan, log *slog.Logger) error {
	dir := filepath.Join(state, "kea")
	url, what, err := realKea(ctx, dir)
	if err != nil && stand.Opened(dir) {
		return fmt.Errorf("start Kea again: %w", err)
	}
	if err != nil {
		if !errors.Is(err, stand.ErrNone) {
			log.Warn("Kea does not start: it is simulated", "error", err)
		}
		what = "simulated: no Kea is installed"
		server, err := kea.New(kea.Options{File: filepath.Join(state, "kea.json"), Faults: plan})
		if err != nil {
			return fmt.Errorf("simulate Kea: %w", err)
		}
		if url, err = serve(ctx, state, "kea", server); err != nil {
			return err
		}
	}
	if err := note("kea", url+" ("+what+")"); err != nil {
		return err
	}
	return apply(ctx, config, secrets, named("kea-reserve", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"KEA_URL": url},
	}))
}

func realKea(ctx context.Context, dir string) (url, what string, err error) {
	server, err := stand.Open(dir)
	if err != nil {
		return "", "", err
	}
	version, err := server.Version(ctx)
	if err != nil {
		server.Stop()
		return "", "", err
	}
	go server.Keep(ctx)
	return server.URL(), "the real Kea " + version, nil
}

// note has whoever started this program tell people where something is, by a line
// in the file that NOTES names.
func note(what, where string) error {
	path := os.Getenv("NOTES")
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("tell where %s is: %w", what, err)
	}
	_, err = fmt.Fprintf(file, "%s\t%s\n", what, where)
	return errors.Join(err, file.Close())
}

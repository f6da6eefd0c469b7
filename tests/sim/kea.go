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

// serveKea runs a DHCP server, and configures the function kea-reserve for it: the real Kea if it is
// installed and the functions reach its loopback address, and otherwise a simulator of its control API. It records the choice, because each of them
// has reservations of its own. It returns the source of leases for clients.
func serveKea(ctx context.Context, config *rest.Config, at site, plan *faults.Plan, log *slog.Logger) (leaser, error) {
	dir := filepath.Join(at.state, "kea")
	server, url, what, err := (*stand.Server)(nil), "", "", stand.ErrNone
	if at.ip == loopbackAddress {
		server, url, what, err = realKea(ctx, dir)
	}
	if err != nil && stand.Opened(dir) {
		return nil, fmt.Errorf("start Kea again: %w", err)
	}
	leases := leaser(server)
	if err != nil {
		if !errors.Is(err, stand.ErrNone) {
			log.Warn("Kea does not start: it is simulated", "error", err)
		}
		what = "simulated: no Kea is installed"
		simulated, err := kea.New(kea.Options{File: filepath.Join(at.state, "kea.json"), Faults: plan})
		if err != nil {
			return nil, fmt.Errorf("simulate Kea: %w", err)
		}
		if url, err = at.serve(ctx, "kea", simulated); err != nil {
			return nil, err
		}
		leases = simulatedLeases{simulated}
	}
	if err := note("kea", url+" ("+what+")"); err != nil {
		return nil, err
	}
	return leases, apply(ctx, config, secrets, named("kea-reserve", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"KEA_URL": url},
	}))
}

func realKea(ctx context.Context, dir string) (server *stand.Server, url, what string, err error) {
	server, err = stand.Open(dir)
	if err != nil {
		return nil, "", "", err
	}
	version, err := server.Version(ctx)
	if err != nil {
		server.Stop()
		return nil, "", "", err
	}
	go server.Keep(ctx)
	return server, server.URL(), "the real Kea " + version, nil
}

// note appends a line to the file in NOTES, which the program that started this one prints.
func note(what, where string) error {
	path := os.Getenv("NOTES")
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the note about %s: %w", what, err)
	}
	_, err = fmt.Fprintf(file, "%s\t%s\n", what, where)
	return errors.Join(err, file.Close())
}

package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/sim/underlay"
)

// serveGateway serves a SOCKS5 proxy into the networks of simulated machines, and configures the
// functions that connect to nodes to use it.
func serveGateway(ctx context.Context, config *rest.Config, at site) error {
	listener, err := at.listen(ctx, "gateway")
	if err != nil {
		return fmt.Errorf("serve the gateway of the simulated networks: %w", err)
	}
	go underlay.Serve(ctx, listener)
	proxy := "socks5://" + listener.Addr().String()
	errs := []error{note("networks", proxy+" (for kubectl: export HTTPS_PROXY="+proxy+")")}
	for _, function := range []string{"bootstrap-talos", "etcd-backup"} {
		errs = append(errs, apply(ctx, config, secrets, named(function, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"ALL_PROXY": proxy, "NO_PROXY": "127.0.0.0/8,::1,localhost"},
		})))
	}
	return errors.Join(errs...)
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/vitistack/stack/knative/local/process"
)

// buildDeployments runs the command of --build, with its output on the terminal, and then starts the Deployments. It returns at once.
// Everything else works without them.
func (e *engine) buildDeployments(background context.Context) {
	ctx, cancel := context.WithCancel(background)
	done := make(chan struct{})
	// Sources stop first, so a Deployment that is started meanwhile is stopped in its turn.
	e.stops[groupSources] = append(e.stops[groupSources], func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		if err := e.buildAndStart(ctx); err != nil && ctx.Err() == nil {
			e.printer.event("%v; continuing without it", err)
		}
	}()
}

func (e *engine) buildAndStart(ctx context.Context) error {
	build, err := e.spawner.Start(process.Command{
		Path: "/bin/sh", Args: []string{"-c", "exec " + e.options.Build}, Env: os.Environ(), Dir: e.options.Root,
	}, e.options.Out)
	if err != nil {
		return err
	}
	select {
	case <-build.Done():
	case <-ctx.Done():
		// The go command removes its temporary files if it and its children are interrupted, as by Ctrl-C.
		_ = syscall.Kill(-build.PID(), syscall.SIGINT)
		select {
		case <-build.Done():
		case <-time.After(componentGrace):
			build.Stop(0)
		}
		return ctx.Err()
	}
	if err := build.Err(); err != nil {
		return fmt.Errorf("build the Deployments: %w", err)
	}
	if err := checkPrograms(e.options.Bin, e.topology.Deployments); err != nil {
		return err
	}
	deployments, err := e.startDeployments()
	for _, service := range deployments {
		err = errors.Join(err, await(ctx, service))
	}
	if err == nil && e.gateway != "" {
		e.printer.event("status page ready: %s", e.gateway)
	}
	return err
}

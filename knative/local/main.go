// Command viti-local runs the whole stack on one machine. It is one program for all parts: the supervisor (up) starts the same program again for each
// component.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vitistack/stack/knative/local/component"
	"github.com/vitistack/stack/knative/local/engine"
)

const usage = `viti-local: the whole stack on one machine.

Usage: viti-local [command]

  up                 run the stack in the foreground (the default); see viti-local up --help
  kubectl ARGS...    kubectl
  help               this text

The supervisor also runs: etcd, kube-apiserver, kube-controllers, apiserversource.
`

// components are the commands that run until they are stopped.
var components = map[string]func(ctx context.Context, args []string) error{
	"up":               up,
	"etcd":             component.Etcd,
	"kube-apiserver":   component.APIServer,
	"kube-controllers": component.Controllers,
	"apiserversource":  component.Source,
}

func main() {
	command, args := "up", os.Args[1:]
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	switch command {
	case "kubectl":
		os.Args = append([]string{"kubectl"}, args...)
		component.Kubectl()
		return
	case "help":
		fmt.Print(usage)
		return
	}
	run, ok := components[command]
	if !ok {
		fmt.Fprintf(os.Stderr, "viti-local: there is no command %q\n\n%s", command, usage)
		os.Exit(2)
	}
	// After the first signal the second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, args); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "viti-local %s: %v\n", command, err)
		os.Exit(1)
	}
}

func up(ctx context.Context, args []string) error {
	options, err := engine.ParseOptions(args, os.Stdout)
	if err != nil {
		return err
	}
	return engine.Run(ctx, options)
}

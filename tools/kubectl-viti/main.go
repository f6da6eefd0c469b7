// Kubectl-viti is a plugin of kubectl for the daily work with the Viti Stack: what needs attention and
// why, credentials of clusters, upgrades, and changes that are more than one field.
//
// It uses the kubeconfig and the rights of the user, and no other server than the API server.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/vitistack/stack/tools/kubectl-viti/command"
)

// version is set by the linker, for a release to its tag.
var version = "dev"

func main() {
	klog.SetLogger(klog.Logger{}) // errors are returned, and printed once
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Run(ctx, version, os.Args[1:], command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// Package component has the components that run in processes of their own: etcd, the Kubernetes API server, three controllers, the ApiServerSource
// adapter and kubectl. Each is upstream's code with the arguments for one machine. The supervisor starts this binary once per component, so that each
// can be killed and restarted individually.
package component

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// ReadyFD is the file descriptor to which a component writes one byte when it is ready.
const ReadyFD = 3

// The sockets of etcd, in its working directory.
const (
	clientSocket = "etcd.sock"
	peerSocket   = "etcd-peer.sock"
)

// Etcd runs a one-member etcd on unix sockets until ctx ends. It does not call fsync: a killed process loses nothing, but a machine that loses power
// may.
func Etcd(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	dir := flags.String("data-dir", "etcd", "directory of the data")
	if err := flags.Parse(args); err != nil {
		return err
	}

	config := embed.NewConfig()
	config.Name = "local"
	config.Dir = *dir
	config.ListenClientUrls = []url.URL{{Scheme: "unix", Host: clientSocket}}
	config.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: peerSocket}}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	// A single member needs no votes of others, so it starts the election at once. The default ticks add up to a second to a start.
	config.TickMs, config.ElectionMs = 20, 100
	config.LogLevel = "warn"
	config.WarningUnaryRequestDuration = time.Second

	server, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd in %s: %w", *dir, err)
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
		if err := ready(os.NewFile(ReadyFD, "ready")); err != nil {
			return err
		}
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return fmt.Errorf("run etcd: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return fmt.Errorf("run etcd: %w", err)
	}
}

// ready notifies the supervisor that the component is ready.
func ready(supervisor *os.File) error {
	_, err := supervisor.Write([]byte{1})
	if err := errors.Join(err, supervisor.Close()); err != nil {
		return fmt.Errorf("notify the supervisor: %w", err)
	}
	return nil
}

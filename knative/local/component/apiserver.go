package component

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// ListenerFD is the file descriptor of the API server's listening socket. The supervisor owns the socket, so that the port remains reserved while the
// API server is down.
const ListenerFD = 3

const dialInterval = 5 * time.Millisecond

// APIServer runs kube-apiserver with its own flags on the socket at ListenerFD until ctx ends.
func APIServer(ctx context.Context, args []string) error {
	listener, err := net.FileListener(os.NewFile(ListenerFD, "listener"))
	if err != nil {
		return fmt.Errorf("take over the listening socket (file descriptor %d): %w", ListenerFD, err)
	}
	server := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range server.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags of kube-apiserver: %w", err)
	}
	server.SecureServing.Listener = listener
	server.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port

	if err := server.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	if err := logsapi.ValidateAndApply(server.Logs, feature.DefaultFeatureGate); err != nil {
		return fmt.Errorf("apply log options: %w", err)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed, err := server.Complete(ctx)
	if err != nil {
		return fmt.Errorf("complete options of kube-apiserver: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return fmt.Errorf("validate options of kube-apiserver: %w", errors.Join(errs...))
	}
	if err := awaitEtcd(ctx, completed.Etcd.StorageConfig.Transport.ServerList); err != nil {
		return err
	}
	return app.Run(ctx, completed)
}

// awaitEtcd waits until the unix sockets among the servers accept connections. The client would otherwise wait a second before its second attempt.
func awaitEtcd(ctx context.Context, servers []string) error {
	for _, server := range servers {
		path, ok := strings.CutPrefix(server, "unix://")
		if !ok {
			continue
		}
		for {
			connection, err := new(net.Dialer).DialContext(ctx, "unix", path)
			if err == nil {
				_ = connection.Close()
				break
			}
			select {
			case <-time.After(dialInterval):
			case <-ctx.Done():
				return fmt.Errorf("wait for etcd: %w", errors.Join(ctx.Err(), err))
			}
		}
	}
	return nil
}

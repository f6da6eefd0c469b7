// Create-vm makes the virtual machine of each Machine on the hypervisor of its
// MachineProvider: layer 3 of the stack.
package main

import (
	"os"
	"time"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/networkpool"
)

func main() {
	events.Run(FunctionName, func() (events.Handler, error) {
		reportIgnoredVariables(events.NewLogger(os.Stderr, os.Getenv("LOG_LEVEL")), os.Getenv)
		client, err := kube.Connect(FunctionName, kinds()...)
		if err != nil {
			return nil, err
		}
		f := &function{
			kube: client, connect: connectBackends(backends, Environment{Home: client, Credentials: Credentials{client, CredentialsNamespaces(os.Getenv)}, Namespace: kube.Namespace(os.Getenv)}),
			local: Local(client), images: allowedImages(os.Getenv), optionalPools: networkpool.Optional(os.Getenv), now: time.Now, patience: 5 * time.Second,
		}
		return f.handle, nil
	})
}

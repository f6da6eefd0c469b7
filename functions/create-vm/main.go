// Create-vm creates the virtual machine of each Machine on the hypervisor of its
// MachineProvider: layer 3 of the stack.
package main

import (
	"os"
	"time"

	segmentplan "github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/kube"
)

func main() {
	events.Run(hypervisor.FunctionName, func() (events.Handler, error) {
		reportIgnoredVariables(events.NewLogger(os.Stderr, os.Getenv("LOG_LEVEL")), os.Getenv)
		client, err := kube.Connect(hypervisor.FunctionName, kinds()...)
		if err != nil {
			return nil, err
		}
		namespace := kube.Namespace(os.Getenv)
		credentials := hypervisor.Credentials{Home: client, Namespaces: hypervisor.CredentialsNamespaces(os.Getenv)}
		f := newFunction(client, connectBackends(backends, hypervisor.Environment{Home: client, Credentials: credentials, Namespace: namespace}), time.Now)
		f.images = allowedImages(os.Getenv)
		f.networks.optionalPools = segmentplan.ArePoolsOptional(os.Getenv(segmentplan.PoolsVariable))
		f.providers.reporter = backendhealth.New(client, namespace)
		f.providers.installTimeout = 5 * time.Second
		return f.handle, nil
	})
}

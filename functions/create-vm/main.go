// Create-vm creates the virtual machine of each Machine on the hypervisor of its
// MachineProvider: layer 3 of the stack.
package main

import (
	"os"
	"time"

	segmentplan "github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
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
		f := &function{
			kube: client, connect: connectBackends(backends, hypervisor.Environment{Home: client, Credentials: hypervisor.Credentials{Home: client, Namespaces: hypervisor.CredentialsNamespaces(os.Getenv)}, Namespace: kube.Namespace(os.Getenv)}),
			local: kubevirt.Local(client), images: allowedImages(os.Getenv), optionalPools: segmentplan.ArePoolsOptional(os.Getenv(segmentplan.PoolsVariable)), reporter: backendhealth.New(client, kube.Namespace(os.Getenv)), now: time.Now, installTimeout: 5 * time.Second,
		}
		return f.handle, nil
	})
}

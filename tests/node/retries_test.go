package node

import (
	"fmt"
	"time"
)

// interfaceManifest is an interface without a machine.
const interfaceManifest = `
apiVersion: vitistack.io/v1alpha1
kind: NetworkConfiguration
metadata: {name: held}
spec:
  networkNamespaceName: tour-network
  networkInterfaces: [{name: eth0, macAddress: "02:00:00:00:40:01"}]
`

// retries has the deliveries of a NetworkConfiguration fail for as long as the Broker repeats them, and requires that another one
// is served meanwhile. They fail because the IPAllocation of an earlier NetworkConfiguration with its name is held by a finalizer.
func (e *env) retries() {
	const retryTime = 48 * time.Second // of the Broker
	e.Apply(interfaceManifest)
	e.Kubectl("wait", "networkconfiguration/held", "--for=condition=Ready", "--timeout=60s")
	e.Kubectl("patch", "ipallocation/held-eth0", "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/held"}]`)
	e.Kubectl("delete", "networkconfiguration/held", "--timeout=60s")
	e.Apply(interfaceManifest)
	e.Kubectl("wait", "networkconfiguration/held", `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=WaitingForAddress`, "--timeout=60s")
	e.Step("the deliveries of an interface fail")
	start := time.Now()
	e.Apply(e.example("basic-vm.yaml"))
	e.Kubectl("wait", "machine/basic-vm", "--for=jsonpath={.status.phase}=Running", "--timeout=180s")
	if took := time.Since(start); took > retryTime/2 {
		e.T.Errorf("a machine is Running after %s: its interface has waited for the retries of another one", took.Round(time.Second/10))
	}
	e.Step("a machine is Running meanwhile")
	e.Kubectl("patch", "ipallocation/held-eth0", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	e.Kubectl("wait", "networkconfiguration/held", "--for=condition=Ready", fmt.Sprint("--timeout=", 2*retryTime))
	e.Kubectl("delete", "machine/basic-vm", "networkconfiguration/held", "--timeout=180s")
	e.Step("both are deleted")
}

package node

import (
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/knative"
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

// retries creates a machine while the deliveries of a NetworkConfiguration fail and are repeated, because the IPAllocation of an earlier
// NetworkConfiguration with its name is held by a finalizer. The channel of the Broker must not wait for them.
func (e *env) retries() {
	channel := e.Kubectl("get", "inmemorychannels", "-n", knative.System, "-o", "jsonpath={.items[*].metadata.annotations}")
	if !strings.Contains(channel, `"messaging.knative.dev/async-handler":"true"`) {
		e.T.Errorf("the channel answers a sender only after its deliveries: its annotations are %s", channel)
	}
	e.Apply(interfaceManifest)
	e.Kubectl("wait", "networkconfiguration/held", "--for=condition=Ready", "--timeout=60s")
	e.Kubectl("patch", "ipallocation/held-eth0", "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/held"}]`)
	e.Kubectl("delete", "networkconfiguration/held", "--timeout=60s")
	table, start := e.results.Table("Retries", "from kubectl apply, while the deliveries of another interface are repeated"), time.Now()
	e.Apply(interfaceManifest)
	e.Apply(e.example("basic-vm.yaml"))
	e.Kubectl("wait", "machine/basic-vm", "--for=jsonpath={.status.phase}=Running", "--timeout=180s")
	table.Row("to a Running machine", time.Since(start))
	e.Step("a machine is Running while deliveries of an interface are repeated")
	e.Kubectl("wait", "networkconfiguration/held", `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=WaitingForAddress`, "--timeout=60s")
	e.Kubectl("patch", "ipallocation/held-eth0", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	e.Kubectl("wait", "networkconfiguration/held", "--for=condition=Ready", "--timeout=120s")
	e.Kubectl("delete", "machine/basic-vm", "networkconfiguration/held", "--timeout=180s")
	e.Step("the interface is Ready, and both are deleted")
}

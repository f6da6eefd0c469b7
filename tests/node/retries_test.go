package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/kubernetes"
)

// silentProvider is a hypervisor that does not answer, at an address.
const silentProvider = `
apiVersion: v1
kind: Secret
metadata: {name: silent, namespace: vitistack-system}
stringData: {username: root@pam, password: secret}
---
apiVersion: vitistack.io/v1alpha1
kind: MachineProvider
metadata: {name: silent}
spec:
  type: proxmox
  endpoint: {url: "https://%s:9"}
  credentialsRef: {name: silent, namespace: vitistack-system}
`

// retries has deliveries for three Machines fail, because their hypervisor does not answer, and requires that another Machine is
// Running long before the last retry.
func (e *env) retries() {
	const (
		// retryTime is how long the Broker repeats a failed delivery.
		retryTime = 48 * time.Second
		machine   = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: %s}\nspec: {template: small, providerRef: {name: %s}}\n"
	)
	e.Apply(fmt.Sprintf(silentProvider, kubernetes.Address))
	var silent []string
	for i := range 3 {
		name := fmt.Sprint("silent-", i)
		silent = append(silent, "machine/"+name)
		e.Apply(fmt.Sprintf(machine, name, "silent"))
	}
	e.Kubectl(append([]string{"wait", "--for=jsonpath={.status.failures}", "--timeout=60s"}, silent...)...)
	e.Step("deliveries for %s fail", strings.Join(silent, ", "))
	start := time.Now()
	e.Apply(fmt.Sprintf(machine, "beside", "kubevirt"))
	e.Kubectl("wait", "machine/beside", "--for=jsonpath={.status.phase}=Running", "--timeout=120s")
	if took := time.Since(start); took > retryTime/2 {
		e.T.Errorf("another machine is Running after %s: it has waited for the retries", took.Round(time.Second/10))
	}
	e.Step("another machine is Running")
	e.Kubectl("delete", "machine/beside", "--timeout=120s")
	e.Kubectl(append([]string{"delete", "--wait=false"}, silent...)...)
	for _, name := range silent { // a deletion waits for the hypervisor, which never answers
		e.Kubectl("patch", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	}
	e.Kubectl("delete", "machineprovider/silent", "--timeout=60s")
	e.Step("they are deleted")
}

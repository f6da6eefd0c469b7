package kubevirt

import (
	"encoding/json"
	"os"

	"github.com/vitistack/stack/tests/stand/lab"
)

// The network of guests, on a bridge of the node. The node is their gateway.
const (
	bridge       = "br0"
	guestNetwork = "10.198.0.0/24"
	guestGateway = "10.198.0.1"
	guestFirst   = "10.198.0.10"
	guestLast    = "10.198.0.250"
)

// createBridge creates the bridge of the node, as an administrator of a hypervisor does.
func createBridge() error {
	for _, args := range []string{"link add " + bridge + " type bridge", "address add " + guestGateway + "/24 dev " + bridge, "link set " + bridge + " up"} {
		if err := lab.IP(args); err != nil {
			return err
		}
	}
	return nil
}

// configureMultus makes Multus the CNI plugin of the node. It calls the plugins of the pod network first, and then those of the
// NetworkAttachmentDefinitions that a pod names.
func (e *env) configureMultus() error {
	pods, err := os.ReadFile(e.Path("cni", "10-pods.conflist"))
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": e.Kubeconfig(), "delegates": []json.RawMessage{pods},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(e.Path("cni", "00-multus.conf"), config, 0o600)
}

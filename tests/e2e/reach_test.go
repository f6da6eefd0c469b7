package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

// TestClusterInAnyNetwork creates clusters in networks as users declare them: that of the
// specification, private ranges of any size, and reservations of DHCP. Simulated nodes can be reached
// at any address.
func TestClusterInAnyNetwork(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	network := func(cidr, gateway string, vlan int, allocation string) string {
		return fmt.Sprintf(`apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: network}
spec:
  datacenterIdentifier: no-west-az1
  networkProvisioning: {provider: manual, manual: {ipv4CIDR: %s, ipv4Gateway: %s, vlanId: %d}}
  ipAllocation: {type: %s}
`, cidr, gateway, vlan, allocation)
	}
	cluster := e.Example("simple-kubernetescluster.yaml")
	cases := map[string]struct{ reason, network, cluster string }{
		"datacenter-01": {reason: "the specification's lab-network", network: e.Example("lab-network.yaml")},
		"private": {
			reason:  "the first network that a new user declares",
			network: network("10.0.0.0/24", "10.0.0.1", 300, "static"),
		},
		"highly-available": {
			reason:  "a virtual address in a private network",
			network: network("172.20.0.0/22", "172.20.0.1", 301, "static"),
			cluster: strings.Replace(cluster, "replicas: 1", "replicas: 3", 1),
		},
		"dhcp": {
			reason:  "the addresses are leases of Kea",
			network: network("10.9.0.0/24", "10.9.0.1", 302, "dhcp"),
		},
	}
	for namespace, tc := range cases {
		e.Apply(namespace, tc.network)
		if tc.cluster == "" {
			tc.cluster = cluster
		}
		e.Apply(namespace, tc.cluster)
	}
	for namespace, tc := range cases {
		t.Log(namespace + ": " + tc.reason)
		e.UntilPhase(engine.KubernetesClusters, namespace, "simple-cluster", "Running")
	}
}

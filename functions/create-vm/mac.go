package main

import (
	"crypto/sha256"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// deriveMAC returns the MAC address of a machine's interface: a locally administered unicast
// address (IEEE 802). It is the same at every call for the same machine and interface, so a retry
// finds what an earlier attempt has created. machine is the Machine's original UID.
func deriveMAC(machine types.UID, iface string) string {
	sum := sha256.Sum256([]byte(string(machine) + "/" + iface))
	const local = 0x02
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", local, sum[0], sum[1], sum[2], sum[3], sum[4])
}

// interfaceMAC returns the MAC address of an interface of a machine.
func interfaceMAC(m *v1alpha1.Machine, n v1alpha1.MachineNetwork) string {
	if n.MACAddress != "" {
		return n.MACAddress.Normalized()
	}
	return deriveMAC(v1alpha1.OriginalUID(m), n.Name)
}

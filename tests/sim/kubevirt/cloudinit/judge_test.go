package cloudinit_test

import (
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/sim/kubevirt/cloudinit"
	stand "github.com/vitistack/stack/tests/stand/cloudinit"
)

// TestAsDebianReads compares the rejections and losses of this package with Debian's own cloud-init
// and netplan.
func TestAsDebianReads(t *testing.T) {
	t.Parallel()
	interfaces := []stand.Interface{{Name: "eth0", MAC: "02:00:00:00:00:01"}, {Name: "eth1", MAC: "02:00:00:00:00:02"}}
	const twoRoutes = `version: 2
ethernets:
  eth0: {match: {macaddress: "02:00:00:00:00:01"}, addresses: [10.0.0.5/24], routes: [{to: 0.0.0.0/0, via: 10.0.0.1}]}
  eth1: {match: {macaddress: "02:00:00:00:00:02"}, addresses: [10.1.0.5/24], routes: [{to: 0.0.0.0/0, via: 10.1.0.1}]}
`
	if _, err := cloudinit.Parse(twoRoutes); err == nil || !strings.Contains(err.Error(), "onflicting default route") {
		t.Errorf("two default routes: got %v", err)
	}
	if _, err := stand.Networkd(t, twoRoutes, interfaces...); err == nil || !strings.Contains(err.Error(), "onflicting default route") {
		t.Errorf("netplan accepts two default routes, so this package must too: %v", err)
	}
	const lost = `version: 2
ethernets:
  eth0: {match: {macaddress: "02:00:00:00:00:01"}, addresses: ["2001:db8::5/64"], routes: [{to: "::/0", via: "2001:db8::1"}]}
`
	read, err := cloudinit.Parse(lost)
	if err != nil || read[0].Gateway.IsValid() {
		t.Errorf("a route to ::/0: got %v, %v", read, err)
	}
	file, err := stand.Eni(t, lost, interfaces[0])
	if err != nil || !strings.Contains(file, "::/64") {
		t.Errorf("cloud-init keeps the route to ::/0, so this package must too: %v\n%s", err, file)
	}
}

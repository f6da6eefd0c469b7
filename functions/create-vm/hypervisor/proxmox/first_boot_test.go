package proxmox

import (
	"bytes"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

func TestRenderCD(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "u"}}
	image, err := renderCD(m, firstBootConfig{userData: "#cloud-config\n{}\n", networkData: "version: 2\n"})
	if err != nil {
		t.Fatal(err)
	}
	const limit = 4 << 20
	if len(image) > limit {
		t.Errorf("the CD has %d bytes", len(image))
	}
	for _, want := range []string{"CD001", "cidata", "#cloud-config", "version: 2", "local-hostname: vm"} {
		if !bytes.Contains(image, []byte(want)) {
			t.Errorf("the CD lacks %q", want)
		}
	}
}

func TestDecideFirstBoot(t *testing.T) {
	t.Parallel()
	nics := []hypervisor.NIC{{
		Static: true, DNS: []string{"192.0.2.1"}, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24"), netip.MustParsePrefix("2001:db8::10/64")},
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	}, {}}
	addresses := map[string]string{"ciupgrade": "0", "citype": "nocloud", "ipconfig0": "ip=192.0.2.10/24,ip6=2001:db8::10/64,gw=192.0.2.1,gw6=2001:db8::1", "ipconfig1": "ip=dhcp", "nameserver": "192.0.2.1"}
	with := func(more map[string]string) map[string]string {
		for key, value := range addresses {
			more[key] = value
		}
		return more
	}
	const admin = "#cloud-config\nusers:\n  - name: admin\n    sudo: ALL=(ALL) NOPASSWD:ALL\n    ssh_authorized_keys: [ssh-rsa AAAA+]\n"
	cases := map[string]struct {
		reason, userData, networkData string
		options                       map[string]string
		cd                            bool
	}{
		"none":    {reason: "addresses alone fit into Proxmox VE's own drive", options: with(map[string]string{})},
		"admin":   {reason: "one administrator fits as well", userData: admin, options: with(map[string]string{"ciuser": "admin", "sshkeys": "ssh-rsa%20AAAA%2B"})},
		"more":    {reason: "packages do not fit", userData: admin + "packages: [curl]\n", cd: true},
		"snippet": {reason: "a named snippet is used", userData: "local:snippets/base.yaml\n", options: with(map[string]string{"cicustom": "user=local:snippets/base.yaml"})},
		"script":  {reason: "a script does not fit", userData: "#!/bin/sh\n", cd: true},
		"network": {reason: "a network configuration from the requester does not fit", networkData: "version: 2", cd: true},
	}
	for name, tc := range cases {
		m := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{CloudInit: &v1alpha1.CloudInit{UserData: tc.userData, NetworkData: tc.networkData}}}
		got := decideFirstBoot(m, hypervisor.Desired{NICs: nics, UserData: tc.userData, NetworkData: tc.networkData})
		if diff := cmp.Diff(tc.options, got.options); diff != "" || got.iso() != tc.cd {
			t.Errorf("%s: %s: CD %t, options (-want +got):\n%s", name, tc.reason, got.iso(), diff)
		}
	}
}

func TestIsCD(t *testing.T) {
	t.Parallel()
	const uid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	for volume, want := range map[string]bool{
		"local:iso/" + cdName(m, firstBootConfig{userData: "#cloud-config\n"}): true,
		"local:iso/vitistack-" + uid + ".iso":                                  true,
		"local:iso/vitistack-" + uid + "-0016d3cca427.iso":                     false,
		"local:iso/vitistack-1b4e28ba-2fa1-11d2-883f-0016d3cca428.iso":         false,
		"local:iso/talos.iso": false,
		"none":                false,
	} {
		if got := isCD(m, volume); got != want {
			t.Errorf("%s: got %t, want %t", volume, got, want)
		}
	}
}

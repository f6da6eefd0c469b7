package talos

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// testBundle is one set of keys for all tests.
var testBundle = sync.OnceValue(func() *secrets.Bundle {
	contract, err := config.ParseContractFromVersion("v1.13.0")
	if err != nil {
		panic(err)
	}
	bundle, err := NewBundle(time.Now(), contract, v1alpha1.ServiceAccountKeyECDSA)
	if err != nil {
		panic(err)
	}
	return bundle
})

func TestRender(t *testing.T) {
	t.Parallel()
	static := []Link{{
		mac: "02:00:00:00:00:01", mtu: 1400,
		addresses: []netip.Prefix{netip.MustParsePrefix("192.168.10.10/24"), netip.MustParsePrefix("2001:db8::10/64")},
		gateways:  []netip.Addr{netip.MustParseAddr("192.168.10.1"), netip.MustParseAddr("2001:db8::1")},
		dns:       []netip.Addr{netip.MustParseAddr("192.168.10.1")},
	}}
	cases := map[string]struct {
		reason string
		talos  string
		node   NodeConfig
		vip    string
		cni    v1alpha1.CNI
		want   []string
		never  []string
	}{
		"ControlPlane": {
			reason: "newer versions have a document for each part of the network",
			talos:  "1.13.9", vip: "192.168.10.5",
			node: NodeConfig{Name: "shop-cp-0", Role: v1alpha1.RoleControlPlane, Version: "1.33.13", Links: static},
			want: []string{"kind: HostnameConfig", "hostname: shop-cp-0", "kind: LinkAliasConfig", "kind: LinkConfig", "address: 192.168.10.10/24", "gateway: 2001:db8::1", "kind: ResolverConfig", "kind: Layer2VIPConfig", "name: 192.168.10.5", "kube-apiserver:v1.33.13", "image: installer.example.com/x:v1.13.9"},
		},
		"Worker": {
			reason: "a worker has no part in the virtual address, and no keys of the control plane",
			talos:  "1.12.4", vip: "192.168.10.5",
			node:  NodeConfig{Name: "shop-pool-0", Role: v1alpha1.RoleWorker, Version: "1.33.13", Links: static},
			want:  []string{"type: worker", "kind: HostnameConfig", "kubelet:v1.33.13"},
			never: []string{"Layer2VIPConfig", "kube-apiserver"},
		},
		"Legacy": {
			reason: "older versions do not support those documents",
			talos:  "1.11.5", vip: "192.168.10.5",
			node:  NodeConfig{Name: "shop-cp-0", Role: v1alpha1.RoleControlPlane, Version: "1.33.13", Links: static},
			want:  []string{"hostname: shop-cp-0", "02:00:00:00:00:01", "- 192.168.10.10/24", "ip: 192.168.10.5"},
			never: []string{"kind: HostnameConfig", "kind: LinkConfig", "Layer2VIPConfig"},
		},
		"No CNI": {
			reason: "Talos installs no network plug-in, which an add-on has",
			talos:  "1.13.9", cni: v1alpha1.CNINone,
			node: NodeConfig{Name: "shop-cp-0", Role: v1alpha1.RoleControlPlane, Version: "1.34.13"},
			want: []string{"cni:\n            name: none"},
		},
		"flannel": {
			reason: "what is the default of Talos is as before, so that no node changes",
			talos:  "1.13.9", cni: v1alpha1.CNIFlannel,
			node:  NodeConfig{Name: "shop-cp-0", Role: v1alpha1.RoleControlPlane, Version: "1.34.13"},
			never: []string{"cni:"},
		},
		"DHCP": {
			reason: "a node with DHCP has no static address",
			talos:  "1.13.9",
			node:   NodeConfig{Name: "shop-cp-0", Role: v1alpha1.RoleControlPlane, Version: "1.34.13"},
			want:   []string{"hostname: shop-cp-0"}, never: []string{"kind: LinkConfig"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contract, err := config.ParseContractFromVersion("v" + tc.talos)
			if err != nil {
				t.Fatal(err)
			}
			c := ClusterConfig{
				Name: "shop", Endpoint: "https://192.168.10.5:6443", SANs: []string{"192.168.10.10"}, Talos: tc.talos, Contract: contract,
				Disk: "/dev/vda", Installer: "installer.example.com/x:v" + tc.talos, Keys: &Keys{Present: testBundle()},
				Networking: v1alpha1.ClusterNetworking{CNI: tc.cni},
			}
			if tc.vip != "" {
				c.VIP = netip.MustParseAddr(tc.vip)
			}
			p, err := Render(c, tc.node)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := Encode(p)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := configloader.NewFromBytes(raw); err != nil {
				t.Errorf("%s: the node would reject it: %v", tc.reason, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(raw), want) {
					t.Errorf("%s: %q is missing", tc.reason, want)
				}
			}
			for _, never := range tc.never {
				if strings.Contains(string(raw), never) {
					t.Errorf("%s: %q must not be in it", tc.reason, never)
				}
			}
		})
	}
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	contract, err := config.ParseContractFromVersion("v1.13.9")
	if err != nil {
		t.Fatal(err)
	}
	c := ClusterConfig{Name: "shop", Endpoint: "https://192.168.10.5:6443", Talos: "1.13.9", Contract: contract, Disk: "/dev/vda", Installer: "i:v1.13.9", Keys: &Keys{Present: testBundle()}}
	p, err := Render(c, NodeConfig{Name: "shop-cp-0", Role: v1alpha1.RoleControlPlane, Version: "1.33.13"})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := EncodeRedacted(p)
	if err != nil {
		t.Fatal(err)
	}
	b := testBundle()
	for name, secret := range map[string]string{
		"cluster secret": b.Cluster.Secret, "bootstrap token": b.Secrets.BootstrapToken, "encryption secret": b.Secrets.SecretboxEncryptionSecret,
		"trustd token": b.TrustdInfo.Token, "private key": "PRIVATE KEY",
	} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the %s is in the redacted configuration", name)
		}
	}
	if !strings.Contains(string(raw), "REDACTED") {
		t.Error("no value is marked as redacted")
	}
}

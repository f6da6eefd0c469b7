package talos

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"

	"github.com/vitistack/stack/apis/v1alpha1"
)

var update = flag.Bool("update", false, "update the golden configurations")

// cloud is the mode of machines that boot an installed disk image.
type cloud struct{ metal }

func (cloud) String() string        { return "cloud" }
func (cloud) RequiresInstall() bool { return false }

// generated matches what differs between two sets of keys: certificates and identifiers.
var generated = regexp.MustCompile(`(?m)^(\s*(?:- )?(?:crt|id): ).+$`)

// TestGolden compares the configurations of each dialect with the reviewed files, and validates them
// for bare metal and for a cloud.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, talos := range []string{"1.11.5", "1.12.6", "1.13.9"} {
		for _, role := range []string{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
			name := talos[:4] + "-" + role + ".yaml"
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := goldenConfig(t, talos, role)
				for _, mode := range []validation.RuntimeMode{metal{}, cloud{}} {
					raw, err := Encode(p)
					if err != nil {
						t.Fatal(err)
					}
					loaded, err := configloader.NewFromBytes(raw)
					if err != nil {
						t.Fatal(err)
					}
					if warnings, err := loaded.Validate(mode, validation.WithStrict()); err != nil || len(warnings) > 0 {
						t.Errorf("a node on %s would reject it: %v, %v", mode, err, warnings)
					}
				}
				redacted, err := EncodeRedacted(p)
				if err != nil {
					t.Fatal(err)
				}
				got := generated.ReplaceAllString(string(redacted), "${1}GENERATED")
				path := filepath.Join("testdata", name)
				if *update {
					if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("run the test with -update, and review the difference (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func goldenConfig(t testing.TB, talos, role string) config.Provider {
	t.Helper()
	contract, err := config.ParseContractFromVersion("v" + talos)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Render(ClusterConfig{
		Name: "shop", Endpoint: "https://192.168.10.5:6443", SANs: []string{"192.168.10.5"}, Talos: talos, Contract: contract,
		Disk: "/dev/vda", Installer: "installer.example.com/x:v" + talos, Keys: &Keys{Present: testBundle()}, VIP: netip.MustParseAddr("192.168.10.5"),
	}, NodeConfig{
		Name: "shop-" + role + "-0", Role: role, Version: "1.33.13",
		Labels: map[string]string{"tier": "front", "node-role.kubernetes.io/front": ""},
		Taints: []v1alpha1.NodeTaint{{Key: "only", Value: "front", Effect: "NoSchedule"}},
		Links: []Link{{
			mac: "02:00:00:00:00:01", mtu: 1400,
			addresses: []netip.Prefix{netip.MustParsePrefix("192.168.10.10/24"), netip.MustParsePrefix("2001:db8::10/64")},
			gateways:  []netip.Addr{netip.MustParseAddr("192.168.10.1"), netip.MustParseAddr("2001:db8::1")},
			dns:       []netip.Addr{netip.MustParseAddr("192.168.10.1")},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

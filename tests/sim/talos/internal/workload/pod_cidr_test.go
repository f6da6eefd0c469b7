package workload_test

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// TestPodCIDR has nodes without a prefix of the pods, which are not Ready, until another node is deleted.
func TestPodCIDR(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cidr   string
		bits   int
		ready  int
		prefix string
	}{
		"IPv4":        {"10.1.0.0/23", 24, 2, "10.1.1.0/24"},
		"IPv6":        {"fd01::/63", 64, 2, "fd01:0:0:1::/64"},
		"Smaller":     {"10.1.0.0/26", 27, 2, "10.1.0.32/27"},
		"Refused":     {"10.1.0.0/25", 24, 0, ""},
		"RefusedIPv6": {"fd01::/47", 64, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, workload.Timing{})
			for _, node := range []string{"a", "b", "c"} {
				k := workload.Kubelet{Name: node, Address: "127.0.0.9", Version: "v1.34.1", PodCIDR: workload.PodCIDR{Cluster: netip.MustParsePrefix(tc.cidr), NodeBits: tc.bits}}
				if err := w.Join(k); err != nil {
					t.Fatal(err)
				}
			}
			await := func(want int) {
				t.Helper()
				ready := 0
				for range 200 {
					ready = 0
					for _, node := range w.Nodes() {
						if workload.NodeReady(node) {
							ready++
						}
					}
					if ready == want {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
				t.Fatalf("%d nodes are Ready, want %d", ready, want)
			}
			await(tc.ready)
			time.Sleep(50 * time.Millisecond)
			await(tc.ready)
			if tc.ready == 0 {
				return
			}
			if node, _ := w.Node("b"); node.Spec.PodCIDR != netip.MustParsePrefix(tc.prefix).String() {
				t.Errorf("node b has %s, want %s", node.Spec.PodCIDR, tc.prefix)
			}
			if err := w.client.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			await(2)
			if node, _ := w.Node("c"); node.Spec.PodCIDR != netip.MustParsePrefix(tc.prefix).String() {
				t.Errorf("node c has %q, want that of the deleted node", node.Spec.PodCIDR)
			}
		})
	}
}

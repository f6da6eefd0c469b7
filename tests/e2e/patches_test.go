package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	diskPatches = `apiVersion: v1
kind: ConfigMap
metadata: {name: disks}
data:
  encryption.yaml: |
    apiVersion: v1alpha1
    kind: VolumeConfig
    name: EPHEMERAL
    encryption:
      provider: luks2
      keys:
        - slot: 0
          nodeID: {}
`
	patchedCluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: shop}
spec:
  data: {}
  networkNamespaceName: network
  topology:
    version: "1.33"
    controlplane: {replicas: 1, template: small, providerRef: {name: kubevirt}}
    workers: [{name: web, replicas: 1, template: small, providerRef: {name: kubevirt}, patches: PATCHES}]
`
)

// encryptedNodes returns the names of the simulated Talos machines whose volume EPHEMERAL is encrypted.
func encryptedNodes(t *testing.T, e *engine.Engine) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(e.Dir, "sim", "talos", "machines", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		var record struct {
			Machine struct{ Hostname string }
			Volumes map[string]struct{ Encrypted bool }
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &record)
		}
		if err == nil && record.Volumes["EPHEMERAL"].Encrypted {
			names = append(names, record.Machine.Hostname)
		}
	}
	return names
}

// TestPatchThatNeedsANewNode encrypts the disks of a pool. kubectl viti plan says beforehand that its machine is replaced, and the
// virtual machine becomes another one, whose disk Talos has encrypted.
func TestPatchThatNeedsANewNode(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--config", "RESYNC_PERIOD=3s")
	e.Apply("default", e.StaticNetwork("network", 10, 100))
	e.Apply("default", strings.Replace(patchedCluster, "PATCHES", "[]", 1))
	e.UntilPhase(engine.KubernetesClusters, "default", "shop", "Running")
	before := uidsOf(e, engine.VirtualMachines)
	e.Apply("default", diskPatches)
	patched := strings.Replace(patchedCluster, "PATCHES", "[disks]", 1)
	file := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, []byte(patched), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := tryViti(t, e, "plan", "-n", "default", "-f", file); !strings.Contains(out, "shop-web-0 has another encryption of EPHEMERAL than its patches") {
		t.Errorf("kubectl viti plan does not say that the machine is replaced: %s", out)
	}
	var change map[string]any
	if err := yaml.Unmarshal([]byte(patched), &change); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"spec": change["spec"]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Client.Resource(engine.KubernetesClusters).Namespace("default").Patch(t.Context(), "shop", types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the virtual machine of the worker is another one", func() (bool, string) {
		vms := uidsOf(e, engine.VirtualMachines)
		kept, replaced := vms["shop-cp-0"] == before["shop-cp-0"], 0
		for name, uid := range vms {
			if strings.HasPrefix(name, "shop-web-") && uid != before["shop-web-0"] {
				replaced++
			}
		}
		ready := readyOf(t, e, "shop")
		return kept && replaced == 1 && len(vms) == 2 && ready.Status == "True", ready.String()
	})
	if names := encryptedNodes(t, e); len(names) != 1 {
		t.Errorf("the disks of %q are encrypted, want that of the worker", names)
	}
}

package talos

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// yamlBomb returns a document of some hundred bytes that expands to ten billion values.
func yamlBomb(key string) string {
	doc := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		doc += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 10) + "]\n"
	}
	return doc + key + ": *j\n"
}

// TestMaliciousPatches has a tenant write patches that expand to a large document or are deeply
// nested. Each is rejected at once.
func TestMaliciousPatches(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Bomb":    yamlBomb("machine"),
		"Sysctls": "machine:\n  sysctls: {a: &a {b: c}, <<: [*a, *a]}\n" + yamlBomb("x"),
		"Deep":    "machine: " + strings.Repeat("[", 900_000),
		"Maps":    "machine: " + strings.Repeat("{a: ", 200_000),
		"Cycle":   "machine: &m {sysctls: *m}",
		"JSON":    `[{"op":"add","path":"/machine/type","value":"controlplane"}]`,
		"Large":   "machine:\n  nonsense: " + strings.Repeat("x", 1_000_000),
		"Binary":  "\x00\x01\xff",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			_, err := ReadPatch("a.yaml of ConfigMap patches", []byte(text))
			var f reconcile.UserError
			if !errors.As(err, &f) || f.Reason != "InvalidPatch" {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// FuzzPatch applies any patch to a configuration. A patched node keeps its cluster, role and name.
func FuzzPatch(f *testing.F) {
	for _, text := range []string{
		"machine:\n  sysctls:\n    vm.swappiness: \"1\"\n", "machine:\n  type: worker\n", "machine: null\n", "cluster: null\n", "machine:\n  $patch: delete\n",
		"apiVersion: v1alpha1\nkind: HostnameConfig\n$patch: delete\n", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n", "machine:\n  token: x\n",
		"machine:\n  network:\n    hostname: x\n", "cluster:\n  id: x\n", "---\n---\n", "machine:\n  ca: null\n", "machine:\n  security: null\n",
		"apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\n", yamlBomb("machine"),
	} {
		f.Add([]byte(text))
	}
	before := goldenConfig(f, "1.13.9", v1alpha1.RoleWorker)
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ReadPatch("x", text)
		if err != nil {
			return
		}
		after, err := p.apply(before, NodeConfig{Name: before.NetworkHostnameConfig().Hostname()})
		if err != nil {
			if !errors.As(err, new(reconcile.UserError)) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if after.Machine().Type() != before.Machine().Type() || after.Cluster().ID() != before.Cluster().ID() || after.NetworkHostnameConfig().Hostname() != before.NetworkHostnameConfig().Hostname() {
			t.Errorf("%q changes the identity of the node", text)
		}
		data, err := after.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := configloader.NewFromBytes(data); err != nil {
			t.Errorf("%q leads to an invalid configuration: %v", text, err)
		}
	})
}

// FuzzSecrets parses any content that a tenant may write into a cluster's Secrets.
func FuzzSecrets(f *testing.F) {
	good, err := EncodeBundle(testBundle())
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{string(good), "", "certs: null\n", "certs:\n  os: null\n", "context: x\ncontexts:\n  x: null\n", "context: x\ncontexts:\n  x:\n    endpoints: [a]\n    crt: AA==\n"} {
		f.Add([]byte(text))
	}
	own := &Keys{Present: testBundle()}
	f.Fuzz(func(_ *testing.T, data []byte) {
		if bundle, err := DecodeBundle(data); err == nil {
			_, _ = NewCredentials(bundle)
		}
		_ = IsTalosconfigCurrent(data, []string{"10.0.0.5"}, own, time.Unix(0, 0))
		_ = IsKubeconfigCurrent(data, "https://10.0.0.5:6443", own, time.Unix(0, 0))
		_ = workload.TalosVersion(string(data))
	})
}

package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// web is a machine as kubectl apply has created it, on a MachineProvider of its own namespace's name.
const web = `apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web}
spec: {template: small, protected: true, networkNamespaceName: net}
`

// TestPlan plans changes of objects that kubectl apply, server-side apply and a program have written.
func TestPlan(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(stuck)
	e.create(strings.Replace(class, "NAME", e.namespace+"-xl", 1))
	applied := func(name, annotation string) {
		e.create(strings.Replace(web, "{name: web}", "{name: "+name+", annotations: {"+annotation+"}}", 1))
	}
	applied("web", `kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"template":"small","protected":true,"networkNamespaceName":"net"}}'`)
	applied("other", "note: x")
	served := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.Replace(web, "web", "served", 1)), &served.Object); err != nil {
		t.Fatal(err)
	}
	raw, _ := json.Marshal(served.Object)
	if _, err := e.In(cluster.MustFindKind("machine"), e.namespace).Patch(t.Context(), "served", types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: "flux"}); err != nil {
		t.Fatal(err)
	}
	standard := "{apiVersion: vitistack.io/v1alpha1, kind: ClusterTemplate, metadata: {name: " + e.namespace + `-standard}, spec: {cluster: {topology: {version: "1.33", controlplane: {replicas: 1}}}, rollout: {waves: [{name: test, selector: {matchLabels: {environment: test}}}]}}}`
	e.create(standard)
	follower := "{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: follower, labels: {environment: test}}, spec: {data: {}, templateRef: {name: " + e.namespace + "-standard}}}"
	e.create(follower)
	without := strings.Replace(web, " protected: true,", "", 1)
	shop := "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: shop}\nspec: {data: {}, topology: {version: \"1.33\", controlplane: {replicas: 1, version: \"1.33\"}, workers: [{name: w, replicas: 3, version: \"1.33\"}]}}\n"
	newSpace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + e.namespace + "-new}\n"
	inNewSpace := strings.Replace(web, "{name: web}", "{name: web, namespace: "+e.namespace+"-new}", 1)
	for name, tc := range map[string]struct {
		because, manifest string
		want              []string
		code              int
	}{
		"Same":     {"nothing would change", web, []string{"stays as it is", "Nothing would change."}, 0},
		"Removed":  {"kubectl apply removes the field", without, []string{"protected: true -> (absent) (applied)"}, 2},
		"Kept":     {"nothing says that the manifest had the field", strings.Replace(without, "web", "other", 1), []string{"Nothing would change.", "Note: the object has not been created by kubectl apply"}, 0},
		"Served":   {"the field manager gives the field up", strings.Replace(without, "web", "served", 1), []string{"protected: true -> (absent) (applied)", "field manager flux"}, 2},
		"New":      {"the API server checks it, and the functions do", strings.Replace(web, "web", "new", 1), []string{"is created", "Waits /spec/providerRef/name (NoMachineProvider)"}, 2},
		"Grow":     {"a worker is created for each replica", shop, []string{"topology.workers[w].replicas: 1 -> 3 (applied)", "create shop-w-0, shop-w-1, shop-w-2"}, 2},
		"Both":     {"each document is planned", web + "---\n" + shop, []string{"Machine " + e.namespace + "/web: stays as it is", "KubernetesCluster " + e.namespace + "/shop: is changed"}, 2},
		"Refused":  {"the API server refuses it", strings.Replace(web, "{name: web}\nspec: {template: small", "{name: new}\nspec: {template: small, disks: [{name: Root}]", 1), []string{"Refused /spec/disks/0/name"}, 1},
		"Template": {"create-vm would refuse it", strings.Replace(strings.Replace(web, "web", "new", 1), "small", "huge", 1), []string{"Refused /spec/template (TemplateNotFound)"}, 1},
		"Class":    {"the MachineClass exists", strings.Replace(strings.Replace(web, "web", "new", 1), "small", e.namespace+"-xl", 1), []string{"is created"}, 2},
		"Version":  {"bootstrap-talos would refuse it", strings.Replace(shop, `version: "1.33", controlplane: {replicas: 1, version: "1.33"}`, `version: "1.33", controlplane: {replicas: 1, version: "1.99"}`, 1), []string{"Refused /spec/topology/version (KubernetesVersionUnknown)"}, 1},
		"Partly": {"nothing else changes", strings.Replace(shop, "{data: {},", "{data: {provider: kubevirt},", 1), []string{"/shop: is refused",
			"data.provider: talos -> kubevirt (refused)", "topology.workers[w].replicas: 1 -> 3 (not applied: see Refused)", "Refused /spec"}, 1},
		"TooMany":   {"the API server refuses the number", strings.Replace(shop, "replicas: 3", "replicas: 900", 1), []string{"topology.workers[w].replicas: 1 -> 900 (refused)"}, 1},
		"Clusters":  {"each cluster of the template is planned", strings.Replace(standard, "1.33", "1.34", 1), []string{"cluster.topology.version: 1.33 -> 1.34 (applied)", "KubernetesCluster " + e.namespace + "/follower: is changed", "in wave test (1 of 1)"}, 2},
		"Follower":  {"the template gives what the manifest lacks", strings.Replace(follower, "{name: follower,", "{name: another,", 1), []string{"is created", "create another-cp-0"}, 2},
		"Namespace": {"the manifest creates its namespace first", newSpace + "---\n" + inNewSpace, []string{"web: is created", "the manifest creates its namespace"}, 2},
		"Later":     {"kubectl apply would refuse it", inNewSpace + "---\n" + newSpace, []string{"create the namespace first"}, 1},
		"Unwritten": {"a field that does not exist", strings.Replace(web, "template:", "tmplate:", 1), []string{"Refused", "tmplate"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "m.yaml")
			if err := os.WriteFile(file, []byte(tc.manifest), 0o600); err != nil {
				t.Fatal(err)
			}
			out, errs, code := e.run("plan", "-f", file)
			if code != tc.code {
				t.Errorf("%s: the code is %d, want %d: %s%s", tc.because, code, tc.code, out, errs)
			}
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s: %q is missing in\n%s%s", tc.because, want, out, errs)
				}
			}
			if tc.code == 1 && strings.Contains(out, "(applied)") {
				t.Errorf("%s: nothing is applied:\n%s", tc.because, out)
			}
			out, errs, _ = e.run("plan", "-f", file, "-o", "json")
			var p preview.Preview
			if err := json.Unmarshal([]byte(out), &p); err != nil || p.Valid != (tc.code != 1) {
				t.Errorf("%s: as JSON: %v, valid %t: %s%s", tc.because, err, p.Valid, out, errs)
			}
		})
	}
	if protected := e.get("machine", "web", "spec", "protected"); protected != true {
		t.Errorf("a plan has changed the object: protected is %v", protected)
	}
	e.refuses([]refusal{
		{"it plans nothing", []string{"plan"}, "kubectl viti plan -f FILE"},
		{"the file does not exist", []string{"plan", "-f", "nowhere.yaml"}, "nowhere.yaml"},
	})
}

// TestPlanMixed plans a manifest that also has a ConfigMap, which counts for the cluster that names it.
func TestPlanMixed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tools}\ndata: {a.yaml: \"apiVersion: v1\\nkind: Namespace\\nmetadata: {name: tools}\\n\"}\n"
	shop := "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: shop}\nspec: {data: {}, addons: [{name: tools, configMap: tools}], topology: {version: \"1.33\", controlplane: {replicas: 1}}}\n"
	for manifest, waits := range map[string]bool{configMap + "---\n" + shop: false, shop: true} {
		file := filepath.Join(t.TempDir(), "m.yaml")
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, _ := e.run("plan", "-f", file)
		if strings.Contains(out, "ConfigMap tools") != waits {
			t.Errorf("the add-on waits for its ConfigMap: want %t:\n%s", waits, out)
		}
		if strings.Contains(errs, "Document 1, ConfigMap tools, is of no kind of the stack") == waits {
			t.Errorf("the note about the ConfigMap: want %t:\n%s", !waits, errs)
		}
	}
}

// TestPlanFolder plans the manifests of a folder.
func TestPlanFolder(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	folder := t.TempDir()
	e.refuses([]refusal{{"no file is a manifest", []string{"plan", "-f", folder}, "has no file with .yaml, .yml or .json"}})
	for name, content := range map[string]string{"a.yaml": web, "b.yml": strings.Replace(web, "web", "db", 1), "notes.md": "no manifest"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, errs, code := e.run("plan", "-f", folder, "-o", "name"); code != 2 || out != "machine/web\nmachine/db\n" {
		t.Errorf("the folder has two machines: got %d, %q, %s", code, out, errs)
	}
}

// TestPlanOfNetworks plans networks with all rights, and with those of a namespace.
func TestPlanOfNetworks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(`{apiVersion: vitistack.io/v1alpha2, kind: NetworkNamespace, metadata: {name: net}, spec: {datacenterIdentifier: no-west-az1, supervisorIdentifier: shop, networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.233.0.0/24, vlanId: 2321}}, ipAllocation: {type: static}}}
---
{apiVersion: vitistack.io/v1alpha1, kind: NetworkPool, metadata: {name: NAMESPACE}, spec: {vlans: ["2320-2329"], allowedNamespaces: {list: [NAMESPACE]}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: tenant}, rules: [{apiGroups: [vitistack.io], resources: ["*"], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: tenant}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-of-NAMESPACE}]}`)
	network := func(segment string) string {
		return "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: lab}\nspec: {datacenterIdentifier: no-west-az1, supervisorIdentifier: shop, networkProvisioning: {provider: manual, manual: {" + segment + "}}, ipAllocation: {type: static}}\n"
	}
	tenant := []string{"--as", "tenant-of-" + e.namespace}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, errs, code := e.run(append([]string{"why", "nn/net"}, tenant...)...)
		if code == 0 {
			break
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("the user has no rights yet: %s", errs)
		}
	}
	for name, tc := range map[string]struct {
		because, manifest string
		args, want        []string
		not               string
		code              int
	}{
		"Free":    {"the pool decides, whatever the settings", network("ipv4CIDR: 10.234.0.0/24, vlanId: 2322"), nil, []string{"is created"}, "Note:", 2},
		"Overlap": {"another network has the prefix", network("ipv4CIDR: 10.233.0.0/25, vlanId: 2321"), nil, []string{"Refused /spec/networkProvisioning/manual (SegmentOverlap)", e.namespace + "/net"}, "", 1},
		"Pool":    {"the pool has other VLANs", network("ipv4CIDR: 10.234.0.0/24, vlanId: 2330"), nil, []string{"(NotInPool)", "VLANs 2320-2329"}, "", 1},
		"Image":   {"users do not know the setting", strings.Replace(web, "small,", "small, os: {imageID: 'https://images.example.com/a.qcow2'},", 1), nil, []string{"Note: not checked before the apply: whether create-vm allows images from images.example.com"}, "", 2},
		"Tenant":  {"the user reads one namespace, and no pools", network("ipv4CIDR: 10.234.0.0/24, vlanId: 2330"), tenant, []string{"NetworkPools cannot be read", "whether a network of another namespace has the segment"}, "NotInPool", 2},
		"Own":     {"the user reads the networks of the namespace", network("ipv4CIDR: 10.233.0.0/25, vlanId: 2321"), tenant, []string{"(SegmentOverlap)"}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "m.yaml")
			if err := os.WriteFile(file, []byte(tc.manifest), 0o600); err != nil {
				t.Fatal(err)
			}
			out, errs, code := e.run(append([]string{"plan", "-f", file}, tc.args...)...)
			flat := strings.Join(strings.Fields(out), " ")
			if code != tc.code {
				t.Errorf("%s: the code is %d, want %d: %s%s", tc.because, code, tc.code, out, errs)
			}
			for _, want := range tc.want {
				if !strings.Contains(flat, want) {
					t.Errorf("%s: %q is missing in\n%s%s", tc.because, want, out, errs)
				}
			}
			if tc.not != "" && strings.Contains(flat, tc.not) {
				t.Errorf("%s: %q is in\n%s", tc.because, tc.not, out)
			}
		})
	}
}

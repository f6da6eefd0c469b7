package preview

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

const (
	clusterHead = "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: shop}\n"
	machineHead = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: web}\n"
	networkHead = "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: lab}\n"
)

// worldOf returns a world with a MachineProvider of one host and a network with 3 free addresses.
func worldOf(t *testing.T) World {
	t.Helper()
	w := World{DefaultTalos: "1.13.9", Settings: &Settings{OptionalPools: true, ImageHosts: onlyHost("images.example.com"), AddonHosts: onlyHost("manifests.example.com")}, NamespaceLabels: func(string) (map[string]string, error) { return nil, nil },
		ConfigMap: func(_, name string) (map[string]string, bool, error) {
			patches := map[string]map[string]string{"cilium": {}, "encrypted": {"a.yaml": encryptionPatch}, "broken": {"a.yaml": "["}}
			data, exists := patches[name]
			return data, exists, nil
		}}
	read := func(text string, into any) {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	p, nn := v1alpha1.MachineProvider{}, v1alpha2.NetworkNamespace{}
	read(`metadata: {name: pve}
spec: {type: proxmox}
status: {capacity: {cpu: "4", memory: 16Gi, memoryAvailable: 8Gi}, nodes: [{name: pve1, ready: true, cpu: "4", memory: 16Gi}], conditions: [{type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: null}]}`, &p)
	read(`metadata: {name: site, namespace: a}
status: {ipAllocationSummary: {allocatedCount: 1, availableCount: 3, totalCount: 4}, ipv4Prefix: 10.0.0.0/24, conditions: [{type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: null}]}`, &nn)
	w.Providers, w.Networks = []v1alpha1.MachineProvider{p}, []v1alpha2.NetworkNamespace{nn}
	return w
}

func parsed(t *testing.T, manifest string) []Document {
	t.Helper()
	documents, err := Parse([]byte(manifest), "a")
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// lines returns findings as text: document, kind/name, pointer, reason and detail.
func lines(findings []Finding) string {
	var all []string
	for _, f := range findings {
		all = append(all, strings.Join(strings.Fields(fmt.Sprintf("%d %s/%s %s %s %s", f.Document, f.Kind, f.Name, f.Pointer, f.Reason, f.Detail)), " "))
	}
	return strings.Join(all, "\n")
}

func TestNewObjects(t *testing.T) {
	t.Parallel()
	topology := func(rest string) string {
		return clusterHead + "spec: {topology: {version: \"1.33\", controlplane: {replicas: 1, template: small}" + rest + "}}\n"
	}
	for name, tc := range map[string]struct {
		reason, manifest, errors, warnings string
		without                            func(*World)
	}{
		"Fine":      {reason: "nothing is in the way", manifest: topology("")},
		"Addons":    {reason: "the ConfigMap exists, and the host is allowed", manifest: strings.Replace(topology(""), "{topology", "{addons: [{name: a, configMap: cilium}, {name: b, url: 'https://manifests.example.com/b.yaml'}], topology", 1)},
		"AddonHost": {reason: "the host is not allowed", manifest: strings.Replace(topology(""), "{topology", "{addons: [{name: b, url: 'https://example.com/b.yaml'}], topology", 1), errors: "1 KubernetesCluster/shop /spec/addons/0/url AddonNotAllowed add-on b: manifests are not read from example.com: put them into a ConfigMap"},
		"Artifact":  {reason: "the registry is not allowed", manifest: strings.Replace(topology(""), "{topology", "{addons: [{name: b, url: 'oci://ghcr.io/org/b:1.2.3'}, {name: c, url: 'oci://manifests.example.com/c@sha256:"+strings.Repeat("a", 64)+"'}], topology", 1), errors: "1 KubernetesCluster/shop /spec/addons/0/url AddonNotAllowed add-on b: manifests are not read from ghcr.io: put them into a ConfigMap"},
		"AddonMap":  {reason: "the ConfigMap may be created later", manifest: strings.Replace(topology(""), "{topology", "{addons: [{name: a, configMap: other}], topology", 1), warnings: "1 KubernetesCluster/shop /spec/addons/0/configMap AddonNotFound add-on a: ConfigMap other does not exist: create it"},
		"Version":   {reason: "no Talos runs it", manifest: strings.Replace(topology(""), "1.33", "1.99", 1), errors: "1 KubernetesCluster/shop /spec/topology/version KubernetesVersionUnknown no release of Kubernetes 1.99 is known: write a version from 1.31 to 1.36"},
		"Template":  {reason: "there is no such size", manifest: strings.Replace(topology(""), "small", "huge", 1), errors: `1 KubernetesCluster/shop /spec/topology/controlplane/template TemplateNotFound pool cp: template "huge" does not exist: write small, medium or large`},
		"Size":      {reason: "the same for a Machine", manifest: machineHead + "spec: {template: huge}", errors: "1 Machine/web /spec/template TemplateNotFound"},
		"Created":   {reason: "the manifest creates the MachineClass", manifest: classManifest + "---\n" + machineHead + "spec: {template: gpu-xl}"},
		"Class":     {reason: "the MachineClass exists", manifest: strings.Replace(topology(""), "small", "gpu-xl", 1), without: withClass(t)},
		"NoClass":   {reason: "the message lists what exists", manifest: topology(", workers: [{name: w, replicas: 1, template: huge}]"), without: withClass(t), errors: `1 KubernetesCluster/shop /spec/topology/workers/0/template TemplateNotFound pool w: template "huge" does not exist: write small, medium, large or gpu-xl, or ask the platform team to create MachineClass huge`},
		"TooLarge":  {reason: "no host has the memory of the MachineClass", manifest: machineHead + "spec: {template: huge}", without: func(w *World) { w.Classes = []v1alpha1.MachineClass{classOf(t, "huge", 2, "999Gi")} }, warnings: "1 Machine/web /spec/providerRef/name NoCapacity no host of MachineProvider pve has 2 CPUs and 999Gi of memory"},
		"Even":      {reason: "two control planes have no majority without one", manifest: strings.Replace(topology(""), "replicas: 1", "replicas: 2", 1), errors: "1 KubernetesCluster/shop /spec/topology/controlplane/replicas InvalidTopology 2 control planes cannot keep a majority"},
		"Pools":     {reason: "machines need names of their own", manifest: topology(", workers: [{name: w, replicas: 1}, {name: w, replicas: 1}]"), errors: "1 KubernetesCluster/shop /spec/topology/workers/1/name InvalidTopology two machines would be called shop-w-0"},
		"Network":   {reason: "the network may be created later", manifest: machineHead + "spec: {template: small, networkNamespaceName: other}", warnings: "1 Machine/web /spec/networkNamespaceName NetworkNamespaceNotFound there is no NetworkNamespace other in namespace a: create it"},
		"NoNetwork": {reason: "a namespace without network", manifest: machineHead + "spec: {template: small}", without: func(w *World) { w.Networks = nil }, warnings: "1 Machine/web /spec/networkNamespaceName NoNetworkNamespace"},
		"Full":      {reason: "the pool has 3 addresses left", manifest: topology(", workers: [{name: w, replicas: 3, template: small}]"), warnings: "1 KubernetesCluster/shop /spec/networkNamespaceName PoolExhausted NetworkNamespace site has 3 free addresses, and 4 are needed"},
		"Together":  {reason: "all documents count", manifest: topology(", workers: [{name: w, replicas: 2, template: small}]") + "---\n" + machineHead + "spec: {template: small}", warnings: "2 Machine/web /spec/networkNamespaceName PoolExhausted NetworkNamespace site has 3 free addresses, and 4 are needed"},
		"Provider":  {reason: "the MachineProvider does not exist", manifest: machineHead + "spec: {template: small, providerRef: {name: esx}}", warnings: "1 Machine/web /spec/providerRef/name MachineProviderNotFound MachineProvider esx does not exist"},
		"NotAllowed": {reason: "the MachineProvider is for another namespace", manifest: machineHead + "spec: {template: small}", without: func(w *World) {
			w.Providers[0].Spec.AllowedNamespaces = &v1alpha1.AllowedNamespaces{List: []string{"b"}}
		}, warnings: "1 Machine/web /spec/providerRef/name MachineProviderNotAllowed"},
		"Memory":      {reason: "the hosts have 8Gi left together", manifest: topology(", workers: [{name: w, replicas: 1, template: large}]"), warnings: "1 KubernetesCluster/shop /spec/topology/workers/0/providerRef/name NoCapacity MachineProvider pve has 8Gi of memory left, and the new machines need 10Gi"},
		"Host":        {reason: "no host is large enough", manifest: machineHead + "spec: {template: small, resources: {cpu: {cores: 9}}}", warnings: "1 Machine/web /spec/providerRef/name NoCapacity no host of MachineProvider pve has 9 CPUs"},
		"Family":      {reason: "Talos finds no address for the nodes", manifest: strings.Replace(topology(""), "{topology", "{networking: {podCIDR: 'fd01::/56'}, topology", 1), errors: "1 KubernetesCluster/shop /spec/networking FamilyMismatch podCIDR fd01::/56 is of IPv6"},
		"Overlap":     {reason: "nodes could not reach each other", manifest: strings.Replace(topology(""), "{topology", "{networking: {podCIDR: 10.0.0.0/16}, topology", 1), errors: "1 KubernetesCluster/shop /spec/networking NetworkOverlap podCIDR 10.0.0.0/16 overlaps 10.0.0.0/24"},
		"PodPrefix":   {reason: "no replacement of the node could become Ready", manifest: strings.Replace(topology(""), "{topology", "{networking: {podCIDR: 10.1.0.0/24}, topology", 1), errors: "1 KubernetesCluster/shop /spec/networking/podCIDR PrefixSize podCIDR 10.1.0.0/24 has a /24 for each of 1 node"},
		"Services":    {reason: "kube-apiserver does not start", manifest: strings.Replace(topology(""), "{topology", "{networking: {serviceCIDR: 172.0.0.0/11}, topology", 1), errors: "1 KubernetesCluster/shop /spec/networking PrefixSize serviceCIDR 172.0.0.0/11 has more addresses"},
		"SameFile":    {reason: "a network of the same file exists by then", manifest: networkHead + "spec: {}\n---\n" + machineHead + "spec: {template: small, networkNamespaceName: lab}", warnings: "2 Machine/web /spec/networkNamespaceName NetworkNamespace lab is not Ready: it is new"},
		"Second":      {reason: "an error names its document", manifest: topology("") + "---\n" + machineHead + "spec: {template: huge}", errors: "2 Machine/web /spec/template TemplateNotFound"},
		"EmptyBefore": {reason: "an empty document counts", manifest: "# nothing\n---\n" + machineHead + "spec: {template: huge}", errors: "2 Machine/web /spec/template TemplateNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldOf(t)
			if tc.without != nil {
				tc.without(&w)
			}
			p := Make(parsed(t, tc.manifest), w)
			if got := lines(p.Errors); !strings.HasPrefix(got, tc.errors) || (tc.errors == "") != (got == "") || p.Valid != (got == "") {
				t.Errorf("%s: errors:\ngot  %s\nwant %s", tc.reason, got, tc.errors)
			}
			if got := lines(p.Warnings); !strings.HasPrefix(got, tc.warnings) || (tc.warnings == "") != (got == "") {
				t.Errorf("%s: warnings:\ngot  %s\nwant %s", tc.reason, got, tc.warnings)
			}
		})
	}
}

const classManifest = "apiVersion: vitistack.io/v1alpha1\nkind: MachineClass\nmetadata: {name: gpu-xl}\nspec: {resources: {cpu: {cores: 2}, memory: {size: 1Gi}}, disks: [{name: root, size: 1Gi}]}\n"

// classOf returns a MachineClass.
func classOf(t *testing.T, name string, cores int32, memory v1alpha1.Size) v1alpha1.MachineClass {
	t.Helper()
	c := v1alpha1.MachineClass{}
	if err := yaml.UnmarshalStrict([]byte(classManifest), &c); err != nil {
		t.Fatal(err)
	}
	c.Name, c.Spec.Resources.CPU.Cores, c.Spec.Resources.Memory.Size = name, cores, memory
	return c
}

// withClass adds the MachineClass gpu-xl to a world.
func withClass(t *testing.T) func(*World) {
	return func(w *World) { w.Classes = []v1alpha1.MachineClass{classOf(t, "gpu-xl", 2, "1Gi")} }
}

// TestDeletedClass previews changes of objects whose MachineClass is deleted.
func TestDeletedClass(t *testing.T) {
	t.Parallel()
	const kept = "status: {template: {name: gpu-xl, machineClass: {resources: {cpu: {cores: 2}, memory: {size: 1Gi}}, disks: [{name: root, size: 1Gi}]}}}"
	pool := `topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: w, replicas: %d, template: gpu-xl}]}`
	accepted := "spec: {" + fmt.Sprintf(pool, 1) + "}\nstatus: {accepted: {" + fmt.Sprintf(pool, 1) + "}}"
	for name, tc := range map[string]struct{ reason, head, before, after, errors, warnings string }{
		"Machine": {"a virtual machine keeps its size", machineHead, "spec: {template: gpu-xl}\n" + kept, "{template: gpu-xl, protected: true}", "", ""},
		"Unknown": {"another template has to exist", machineHead, "spec: {template: gpu-xl}\n" + kept, "{template: huge}", "1 Machine/web /spec/template TemplateNotFound", ""},
		"Cluster": {"new machines wait", clusterHead, accepted, "{" + fmt.Sprintf(pool, 2) + "}", "", "1 KubernetesCluster/shop /spec/topology/workers/0/template TemplateNotFound pool w: new machines wait: template \"gpu-xl\" does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := changed(t, tc.head, tc.before, tc.after)
			d[0].After.Object["status"] = d[0].Before.Object["status"]
			p := Make(d, worldOf(t))
			if got := lines(p.Errors); !strings.HasPrefix(got, tc.errors) || (got == "") != (tc.errors == "") {
				t.Errorf("%s: errors %s, want %s", tc.reason, got, tc.errors)
			}
			if got := lines(p.Warnings); !strings.HasPrefix(got, tc.warnings) || (got == "") != (tc.warnings == "") {
				t.Errorf("%s: warnings %s, want %s", tc.reason, got, tc.warnings)
			}
		})
	}
}

// TestAutoscalingIsSwitchedOn previews a pool that becomes autoscaled while the spec has the number of another time.
func TestAutoscalingIsSwitchedOn(t *testing.T) {
	t.Parallel()
	const topology = `topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: w, replicas: 2, autoscaling: {enabled: %t, maxReplicas: 3}}], scaledWorkers: 1}`
	before := fmt.Sprintf(topology, false)
	d := changed(t, clusterHead, "spec: {"+before+"}\nstatus: {accepted: {"+before+"}}", "{"+fmt.Sprintf(topology, true)+"}")
	d[0].After.Object["status"] = d[0].Before.Object["status"]
	steps := fmt.Sprint(Make(d, worldOf(t)).Documents[0].Steps)
	if !strings.Contains(steps, "shop-w-0") || !strings.Contains(steps, "shop-w-1") {
		t.Errorf("the pool keeps its two workers: got steps %s", steps)
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, manifest, want string }{
		"Kind":      {"it is of another project", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "document 1: v1 Secret is no kind of the stack"},
		"NoKind":    {"what it is has to be written", "apiVersion: vitistack.io/v1alpha1\nmetadata: {name: a}\n", "the object has no kind: write one of ClusterTemplate"},
		"NoVersion": {"the kind is right", "kind: Machine\nmetadata: {name: a}\n", `the Machine has the apiVersion "": write`},
		"Namesake":  {"another project has the kind, too", "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Machine\nmetadata: {name: a}\n", `the Machine has the apiVersion "cluster.x-k8s.io/v1beta1": write`},
		"Version":   {"there is no such version", "apiVersion: vitistack.io/v9\nkind: Machine\nmetadata: {name: a}\n", "or vitistack.io/v1alpha1 for the other kinds"},
		"Second":    {"the error names the document", machineHead + "---\n{", "document 2: "},
		"NoName":    {"it cannot be compared", "apiVersion: vitistack.io/v1alpha1\nkind: Machine\n", "write metadata.name"},
		"Empty":     {"nothing would happen", "# nothing\n", "write at least one object"},
		"Twice":     {"one of the two would be ignored", machineHead + "spec: {template: a}\nspec: {template: b}\n", "document 1: "},
		"Many":      {"it would take long", strings.Repeat(machineHead+"---\n", maxDocuments+1), "more than 50 objects"},
	} {
		if _, err := Parse([]byte(tc.manifest), "a"); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}

// TestParseMixed has a manifest with an object of another project.
func TestParseMixed(t *testing.T) {
	t.Parallel()
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: patches}\n"
	documents, others, err := ParseMixed([]byte(configMap+"---\n"+machineHead), "a")
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != 1 || documents[0].Index != 2 || len(others) != 1 || others[0].Index != 1 || others[0].Object.GetNamespace() != "a" {
		t.Errorf("documents %+v, others %+v", documents, others)
	}
	for name, manifest := range map[string]string{"Alone": configMap, "Unknown": "apiVersion: vitistack.io/v1alpha1\nkind: Router\nmetadata: {name: a}\n", "NoVersion": "kind: ConfigMap\nmetadata: {name: a}\n"} {
		if _, _, err := ParseMixed([]byte(manifest), "a"); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "is no kind of the stack: write one of ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestParseList parses what kubectl get -o yaml writes of several objects.
func TestParseList(t *testing.T) {
	t.Parallel()
	const list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: patches}}\n- {apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: web}}\n"
	documents, others, err := ParseMixed([]byte(list), "a")
	if err != nil || len(documents) != 1 || documents[0].Object.GetName() != "web" || documents[0].Object.GetNamespace() != "a" || len(others) != 1 {
		t.Errorf("documents %+v, others %+v, %v", documents, others, err)
	}
	for want, items := range map[string]string{
		"item 1 of the List: the Machine has no name: write metadata.name": "[{apiVersion: vitistack.io/v1alpha1, kind: Machine}]",
		"write at least one object":                                        "[]",
		"more than 50 objects":                                             "[" + strings.Repeat("{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: web}}, ", maxDocuments+1) + "]",
	} {
		if _, err := Parse([]byte("apiVersion: v1\nkind: List\nitems: "+items), "a"); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// changed returns documents for a change of the spec of one object.
func changed(t *testing.T, head, before, after string) []Document {
	t.Helper()
	d := parsed(t, head+"spec: "+after)
	d[0].Before, d[0].After = parsed(t, head+before)[0].Object, d[0].Object
	return d
}

func TestChanges(t *testing.T) {
	t.Parallel()
	machine := "spec: {template: small, cloudInit: {userData: secret}}\nstatus: {provider: pve}"
	for name, tc := range map[string]struct {
		reason, head, before, after, want, errors string
	}{
		"None":      {reason: "the same again", head: machineHead, before: machine, after: "{template: small, cloudInit: {userData: secret}}"},
		"Restart":   {reason: "the hypervisor decides about memory", head: machineHead, before: machine, after: "{template: small, cloudInit: {userData: secret}, resources: {memory: {size: 6Gi}}}", want: "resources.memory.size <nil> 6Gi at restart"},
		"Hidden":    {reason: "user data may hold passwords", head: machineHead, before: machine, after: "{template: small, cloudInit: {userData: other}}", want: "cloudInit.userData (not shown) (not shown) initial only", errors: "1 Machine/web /spec/cloudInit/userData spec.cloudInit.userData: cloudInit cannot be changed any more"},
		"Removed":   {reason: "a field that the manifest leaves out", head: machineHead, before: "spec: {template: small, protected: true}", after: "{template: small}", want: "protected true <nil> applied"},
		"Item":      {reason: "items of a list are compared by their names", head: clusterHead, before: "spec: {topology: {workers: [{name: a, replicas: 1}, {name: b, replicas: 1}]}}", after: "{topology: {workers: [{name: b, replicas: 2}, {name: a, replicas: 1}]}}", want: "topology.workers[b].replicas 1 2 applied"},
		"NewItem":   {reason: "an item is added as a whole", head: clusterHead, before: "spec: {topology: {workers: [{name: a, replicas: 1}]}}", after: "{topology: {workers: [{name: a, replicas: 1}, {name: b}]}}", want: "topology.workers[b] <nil> map[name:b] applied"},
		"Map":       {reason: "labels are one field", head: clusterHead, before: "spec: {topology: {controlplane: {labels: {a: b}}}}", after: "{topology: {controlplane: {labels: {a: c}}}}", want: "topology.controlplane.labels map[a:b] map[a:c] applied"},
		"Immutable": {reason: "a field that counts at the creation only", head: clusterHead, before: "spec: {networkNamespaceName: a}", after: "{networkNamespaceName: b}", want: "networkNamespaceName a b initial only", errors: "1 KubernetesCluster/shop /spec/networkNamespaceName spec.networkNamespaceName: networkNamespaceName cannot be changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Make(changed(t, tc.head, tc.before, tc.after), worldOf(t))
			var got []string
			for _, c := range p.Documents[0].Changes {
				got = append(got, fmt.Sprintf("%s %v %v %s", c.Field, c.From, c.To, c.Outcome))
			}
			if strings.Join(got, "; ") != tc.want || p.Changed != (tc.want != "") {
				t.Errorf("%s:\ngot  %s, changed %t\nwant %s", tc.reason, strings.Join(got, "; "), p.Changed, tc.want)
			}
			if all := lines(p.Errors); !strings.HasPrefix(all, tc.errors) {
				t.Errorf("%s: errors %s, want %s", tc.reason, all, tc.errors)
			}
		})
	}
}

// TestChangedProvider names another MachineProvider for a Machine that has none yet, because it waits for one.
func TestChangedProvider(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, before, after, warnings string }{
		"Unknown": {"there is no such MachineProvider either", "spec: {template: small, providerRef: {name: esx}}", "{template: small, providerRef: {name: esx2}}", "1 Machine/web /spec/providerRef/name MachineProviderNotFound MachineProvider esx2 does not exist"},
		"Known":   {"the MachineProvider exists", "spec: {template: small, providerRef: {name: esx}}", "{template: small, providerRef: {name: pve}}", ""},
	} {
		d := changed(t, machineHead, tc.before, tc.after)
		if got := lines(Make(d, worldOf(t)).Warnings); !strings.HasPrefix(got, tc.warnings) || (got == "") != (tc.warnings == "") {
			t.Errorf("%s: %s: warnings %q, want %q", name, tc.reason, got, tc.warnings)
		}
	}
}

const resizedInPlace = "resize shop-w-0 shop-w-1 1: machines of pool w are resized in place, one after another: a node is drained for at most 5m0s, and its machine restarts with the new size"

// hostsOf returns the host pve1, and pve2 like it if that is named, with used memory and with CPUs of the named one.
func hostsOf(host v1alpha1.ProviderNode, name, used, cpus string) []v1alpha1.ProviderNode {
	named := host
	named.Name = name
	memory := resource.MustParse(used)
	named.MemoryUsed = &memory
	if cpus != "" {
		named.CPU = resource.MustParse(cpus)
	}
	if name == host.Name {
		return []v1alpha1.ProviderNode{named}
	}
	return []v1alpha1.ProviderNode{host, named}
}

// TestChangesOfMachines changes a cluster of a control plane and two workers.
func TestChangesOfMachines(t *testing.T) {
	t.Parallel()
	spec := `{topology: {version: "1.33", controlplane: {replicas: 1, template: small}, workers: [{name: w, replicas: 2, template: small, drainTimeout: 5m}]}}`
	status := "spec: " + spec + "\nstatus: {version: 1.33.13, talosVersion: 1.13.9}"
	for name, tc := range map[string]struct {
		reason, from, to, want, warning, refused string
		// on is the host of the machines, on which memory is used, and cpus are its CPUs.
		on, used, cpus string
	}{
		"Grow":    {reason: "a worker is created", from: "replicas: 2", to: "replicas: 3", want: "create shop-w-2 1: machines of pool w are created"},
		"Shrink":  {reason: "a worker is drained", from: "replicas: 2", to: "replicas: 1", want: "remove shop-w-1 1: nodes of pool w are drained for at most 5m0s, and their machines deleted"},
		"Version": {reason: "the control plane comes first", from: "1.33", to: "1.34", want: "upgrade shop-cp-0 1: the API servers are upgraded to Kubernetes 1.34.13; upgrade shop-cp-0 1: the kubelets of the control plane are upgraded to Kubernetes 1.34.13; upgrade shop-w-0 shop-w-1 1: the kubelets of pool w are upgraded to Kubernetes 1.34.13"},
		"Skip":    {reason: "a minor version cannot be left out", from: "1.33", to: "1.35", refused: "1 KubernetesCluster/shop /spec/topology/version KubernetesUpgradePath"},
		"Resize": {reason: "machines that stay need no room for others", from: "replicas: 2, template: small", to: "replicas: 2, template: large, rollout: {type: InPlace}",
			want: "resize shop-w-0 shop-w-1 1: machines of pool w are resized in place, one after another: a node is drained for at most 5m0s, and its machine restarts with the new size"},
		"ResizeNoRoom": {reason: "two workers need 6 GiB more each on a provider with 8 GiB left", from: "replicas: 2, template: small", to: "replicas: 2, template: large, rollout: {type: InPlace}", on: "pve2", used: "1Gi", want: resizedInPlace,
			warning: "/spec/topology/workers/0/template NoCapacity MachineProvider pve has 8Gi of memory left, and the machines need 12Gi more"},
		"ResizeFullHost": {reason: "a machine restarts on its host", from: "replicas: 2, template: small", to: "replicas: 2, template: medium, rollout: {type: InPlace}", on: "pve1", used: "13Gi", want: resizedInPlace,
			warning: "/spec/topology/workers/0/template NoCapacity host pve1 of MachineProvider pve has 3Gi of memory left, and the machines on it need 4Gi more"},
		"ResizeFits": {reason: "the host has room", from: "replicas: 2, template: small", to: "replicas: 2, template: medium, rollout: {type: InPlace}", on: "pve1", used: "12Gi", want: resizedInPlace},
		"ResizeFewCPUs": {reason: "the host has fewer CPUs, and others have enough", from: "replicas: 2, template: small", to: "replicas: 2, template: large, rollout: {type: InPlace}", on: "pve2", cpus: "2", used: "1Gi", want: resizedInPlace,
			warning: "/spec/topology/workers/0/template NoCapacity host pve2 of MachineProvider pve has 2 CPUs, and Machine shop-w-0 would get 4"},
		"ResizeTooLarge": {reason: "no host can run it", from: "replicas: 2, template: small", to: "replicas: 2, template: large, rollout: {type: InPlace}", on: "pve1", cpus: "2", used: "1Gi", want: resizedInPlace,
			warning: "/spec/topology/workers/0/template NoCapacity no host of MachineProvider pve has 4 CPUs"},
		"ResizeTwo": {reason: "maxUnavailable at a time", from: "replicas: 2, template: small", to: "replicas: 2, template: large, rollout: {type: InPlace, maxUnavailable: 2}",
			want: "resize shop-w-0 shop-w-1 2: machines of pool w are resized in place, 2 at a time: a node is drained for at most 5m0s, and its machine restarts with the new size"},
		"Replace": {reason: "one machine more for a while has to fit", from: "replicas: 2, template: small", to: "replicas: 2, template: large", want: "replace shop-w-0 shop-w-1 1: machines of pool w are replaced: a new machine joins, and the node of the former one is drained for at most 5m0s"},
		"NoRoom":  {reason: "the network has 3 free addresses", from: "replicas: 2", to: "replicas: 6", want: "create shop-w-2 shop-w-3 shop-w-4 shop-w-5 4: machines of pool w are created", warning: "PoolExhausted NetworkNamespace site has 3 free addresses, and 4 are needed"},
		"Labels":  {reason: "labels change no machine", from: "drainTimeout: 5m", to: "labels: {a: b}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldOf(t)
			for i, name := range []string{"shop-cp-0", "shop-w-0", "shop-w-1"} {
				m := v1alpha1.Machine{}
				m.Name, m.Namespace, m.Spec.Template = name, "a", "small"
				m.Labels = map[string]string{v1alpha1.LabelClusterName: "shop", v1alpha1.LabelMachineTemplate: "small", v1alpha1.LabelClusterRole: v1alpha1.RoleWorker, v1alpha1.LabelWorkerGroup: "w"}
				if i == 0 {
					m.Labels[v1alpha1.LabelClusterRole] = v1alpha1.RoleControlPlane
				}
				if tc.on != "" {
					m.Status.Provider, m.Status.NodeName = "pve", tc.on
				}
				w.Machines = append(w.Machines, m)
			}
			if tc.on != "" {
				w.Providers[0].Status.Nodes = hostsOf(w.Providers[0].Status.Nodes[0], tc.on, tc.used, tc.cpus)
			}
			d := changed(t, clusterHead, status, strings.Replace(spec, tc.from, tc.to, 1))
			d[0].After.Object["status"] = d[0].Before.Object["status"]
			p := Make(d, w)
			var got []string
			for _, s := range p.Documents[0].Steps {
				got = append(got, fmt.Sprintf("%s %s %d: %s", s.Action, strings.Join(s.Machines, " "), s.AtOnce, s.Detail))
			}
			if strings.Join(got, "; ") != tc.want {
				t.Errorf("%s:\ngot  %s\nwant %s", tc.reason, strings.Join(got, "; "), tc.want)
			}
			if warned := lines(p.Warnings); !strings.Contains(warned, tc.warning) || (warned == "") != (tc.warning == "") {
				t.Errorf("%s: warnings %s, want %s", tc.reason, warned, tc.warning)
			}
			if refused := lines(p.Errors); !strings.HasPrefix(refused, tc.refused) || (refused == "") != (tc.refused == "") {
				t.Errorf("%s: errors %s, want %s", tc.reason, refused, tc.refused)
			}
		})
	}
}

// TestRefusedChanges refuses a part of a change: nothing of it happens, the fields that are refused say so, and the errors have each
// once.
func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	spec := `{topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: v, replicas: 1}, {name: w, replicas: 2, template: small}]}}`
	for name, tc := range map[string]struct {
		because, from, to string
		refusal           Finding
		want              string
	}{
		"Function": {"bootstrap-talos finds no template huge", "replicas: 2, template: small", "replicas: 3, template: huge", Finding{},
			"topology.workers[w].replicas applied; topology.workers[w].template refused"},
		"Server": {"the API server names the item by its index", "replicas: 2, template: small", "replicas: 900, template: large", Finding{Pointer: "/spec/topology/workers/1/replicas"},
			"topology.workers[w].replicas refused; topology.workers[w].template applied"},
		"Within": {"the API server names a part of the field", "replicas: 2, template: small", "replicas: 2, template: small, autoscaling: {enabled: true, minReplicas: 1, maxReplicas: 900}",
			Finding{Pointer: "/spec/topology/workers/1/autoscaling/maxReplicas"},
			"topology.workers[w].autoscaling.enabled applied; topology.workers[w].autoscaling.maxReplicas refused; topology.workers[w].autoscaling.minReplicas applied"},
		"Part": {"the change has the refused field", "{name: v, replicas: 1}", "{name: u, replicas: 900}", Finding{Pointer: "/spec/topology/workers/0/replicas"},
			"topology.workers[u] refused; topology.workers[v] applied"},
		"Whole":     {"only the text names the field", `version: "1.33"`, `version: "1.34"`, Finding{Pointer: "/spec"}, "topology.version applied"},
		"Immutable": {"package changes knows it", `{topology:`, `{networkNamespaceName: other, topology:`, Finding{Pointer: "/spec", Detail: "networkNamespaceName cannot be changed"}, "networkNamespaceName initial only"},
		"Other":     {"the API server refuses another field", `{topology: {version: "1.33"`, `{networkNamespaceName: other, topology: {version: "1.34"`, Finding{Pointer: "/spec/topology/version", Detail: "no"}, "networkNamespaceName applied; topology.version refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := changed(t, clusterHead, "spec: "+spec+"\nstatus: {version: 1.33.13, talosVersion: 1.13.9}", strings.Replace(spec, tc.from, tc.to, 1))
			d[0].After.Object["status"] = d[0].Before.Object["status"]
			if d[0].Checked = true; tc.refusal.Pointer != "" {
				d[0].Refusals = []Finding{tc.refusal}
			}
			p := Make(d, worldOf(t))
			var got []string
			for _, c := range p.Documents[0].Changes {
				got = append(got, c.Field+" "+string(c.Outcome))
			}
			if strings.Join(got, "; ") != tc.want || p.Valid || len(p.Documents[0].Steps) > 0 {
				t.Errorf("%s: got %s, want %s, and no steps: %+v", tc.because, strings.Join(got, "; "), tc.want, p)
			}
			if len(p.Errors) != 1 {
				t.Errorf("%s: got %d errors, want 1:\n%s", tc.because, len(p.Errors), lines(p.Errors))
			}
		})
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	const last = `metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"template":"small","protected":true}}'}}` + "\n"
	for name, tc := range map[string]struct {
		reason, before, manifest, want string
		noted                          bool
	}{
		"Removed":  {"kubectl apply removes what the last manifest had", last + "spec: {template: small, protected: true, restartToken: a}", "spec: {template: small}", "{restartToken: a, template: small}", false},
		"Kept":     {"a field of others stays", last + "spec: {template: small, protected: true, restartToken: a}", "spec: {template: large, protected: true}", "{protected: true, restartToken: a, template: large}", false},
		"NotKnown": {"nothing says who wrote a field", "metadata: {}\nspec: {template: small, protected: true}", "spec: {template: small}", "{protected: true, template: small}", true},
	} {
		read := func(text string) *unstructured.Unstructured {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte("apiVersion: vitistack.io/v1alpha1\nkind: Machine\n"+text), &o.Object); err != nil {
				t.Fatal(err)
			}
			return o
		}
		after, note, err := Merge(read(tc.before), read(tc.manifest))
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := yaml.Unmarshal([]byte(tc.want), &want); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(after.Object["spec"]); got != fmt.Sprint(want) || (note != "") != tc.noted {
			t.Errorf("%s: %s: got %s, note %q, want %v", name, tc.reason, got, note, want)
		}
	}
}

package changes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// subject is an object of the stand.
type subject struct {
	resource        schema.GroupVersionResource
	namespace, name string
	// phase is that of the object once it is settled, or empty for an object without a phase.
	phase string
}

// site is the namespace of the network in which machines and nodes are reached.
const site = "site"

// subjects are the settled objects by the name that rows give them. The page shows these names.
var subjects = map[string]subject{
	"manual":            {engine.NetworkNamespaces, site, "network", "Ready"},
	"spare":             {engine.NetworkNamespaces, "spare", "network", "Ready"},
	"dhcp":              {engine.NetworkNamespaces, "tour-dhcp", "reserved", "Ready"},
	"nam":               {engine.NetworkNamespaces, "tour-nam", "automated", "Ready"},
	"netbox":            {engine.NetworkNamespaces, "tour-netbox", "documented", "Ready"},
	"external IPAM":     {engine.NetworkNamespaces, "tour-ipam", "external", "Ready"},
	"static":            {engine.NetworkConfigurations, site, "host", "Ready"},
	"dual stack":        {engine.NetworkConfigurations, "tour-nam", "host", "Ready"},
	"Kea":               {engine.NetworkConfigurations, "tour-dhcp", "printer", "Ready"},
	"reservation":       {engine.IPAllocations, site, "reserved", "Allocated"},
	"KubeVirt":          {engine.Machines, site, "on-kubevirt", "Running"},
	"Proxmox VE":        {engine.Machines, site, "on-proxmox", "Running"},
	"class":             {engine.MachineClasses, "", "changes-xl", ""},
	"template":          {engine.ClusterTemplates, "", "changes-standard", ""},
	"type kubevirt":     {engine.MachineProviders, "", "later-kubevirt", "Ready"},
	"type proxmox":      {engine.MachineProviders, "", "later-proxmox", "Ready"},
	"one control plane": {engine.KubernetesClusters, site, "single", "Running"},
	"three on Proxmox":  {engine.KubernetesClusters, site, "ha", "Running"},
	"local":             {engine.EtcdBackups, site, "often", "Scheduled"},
	"once":              {engine.EtcdBackups, site, "once", "Completed"},
}

// gates are pools and MachineProviders, each of which excludes a network or a machine by one field. The
// excluded object becomes Ready once the field is changed.
var gates = []string{"list", "labels", "key", "operator", "values", "providers", "vlans", "prefixes", "share", "bridges"}

const (
	machineProvider = "apiVersion: vitistack.io/v1alpha1\nkind: MachineProvider\nmetadata: {name: %s}\nspec: {type: kubevirt, %s}\n"
	machineClass    = "apiVersion: vitistack.io/v1alpha1\nkind: MachineClass\nmetadata: {name: %s}\nspec: {%s}\n"
	clusterTemplate = "apiVersion: vitistack.io/v1alpha1\nkind: ClusterTemplate\nmetadata: {name: %s}\nspec: {%s}\n"
	networkPool     = "apiVersion: vitistack.io/v1alpha1\nkind: NetworkPool\nmetadata: {name: %s}\nspec: {%s}\n"
	machine         = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: %s}\nspec: {%s}\n"
	cluster         = "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: %s}\nspec: {%s}\n"
	configuration   = "apiVersion: vitistack.io/v1alpha1\nkind: NetworkConfiguration\nmetadata: {name: %s}\nspec: {%s}\n"
	backup          = "apiVersion: vitistack.io/v1alpha1\nkind: EtcdBackup\nmetadata: {name: %s}\nspec: {%s}\n"
	network         = "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: %s}\nspec: {%s}\n"
)

// world is the stand with its settled objects.
type world struct {
	*testing.T
	e    *engine.Engine
	mu   sync.Mutex
	made map[string]bool
	// before has the objects as they were settled.
	before map[string]*unstructured.Unstructured
	// clusters is what the REST API has shown at a time.
	clusters []byte
	askedAt  time.Time
}

// build creates the objects that rows change, and waits until all are settled.
func build(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, e: engine.Start(t, "--config", "RESYNC_PERIOD=3s"), made: map[string]bool{}, before: map[string]*unstructured.Unstructured{}}
	for gate, s := range gateSubjects() {
		subjects[gate] = s
	}
	w.e.Apply("", w.e.Example("tour-networks.yaml"))
	w.e.Apply("", w.e.Example("tour-dhcp.yaml"))
	w.e.Apply(site, w.e.StaticNetwork("network", 10, 250))
	w.e.UntilPhase(engine.NetworkNamespaces, site, "network", "Ready")
	w.e.Apply("spare", fmt.Sprintf(network, "network", "networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.78.0.0/24, vlanId: 78}}, ipAllocation: {type: static, static: {ipv4RangeStart: 10.78.0.10}}"))
	w.e.Apply("", fmt.Sprintf(machineClass, "changes-xl", "resources: {cpu: {cores: 1, sockets: 1, threads: 1}, memory: {size: 3Gi}}, disks: [{name: root, size: 25Gi, storageClass: standard, accessMode: ReadWriteOnce, volumeMode: Filesystem}]"))
	w.e.Apply("", fmt.Sprintf(clusterTemplate, "changes-standard", "cluster: {topology: {controlplane: {taints: [{key: a, effect: NoSchedule}]}, workers: [{name: a, replicas: 1, taints: [{key: a, effect: NoSchedule}]}]}, addons: [{name: a, configMap: a}]}, rollout: {waves: [{name: a, selector: {matchLabels: {a: b}}}]}"))
	w.copyProvider("kubevirt")
	w.copyProvider("proxmox")
	w.e.Apply(site, fmt.Sprintf(machine, "on-kubevirt", "template: small, providerRef: {name: kubevirt}, networkNamespaceName: network, disks: [{name: scratch, size: 4Gi}]"))
	w.e.Apply(site, fmt.Sprintf(machine, "on-proxmox", "template: small, providerRef: {name: proxmox}, networkNamespaceName: network, disks: [{name: scratch, size: 4Gi}]"))
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.e.Apply(site, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: patch-%[1]s}\ndata: {sysctl.yaml: \"machine: {sysctls: {vm.patch-%[1]s: '1'}}\"}\n", name))
	}
	for _, name := range []string{"a", "b"} {
		w.e.Apply(site, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: addon-%[1]s}\ndata: {settings.yaml: \"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {from: %[1]s}}\"}\n", name))
	}
	w.e.Apply(site, fmt.Sprintf(cluster, "single", `data: {clusterId: single}, networkNamespaceName: network, addons: [{name: settings, configMap: addon-a}], talos: {version: 1.13.3}, topology: {version: "1.33", controlplane: {replicas: 1, taints: [{key: dedicated, value: etcd, effect: PreferNoSchedule}]},
  workers: [{name: a, replicas: 1, template: small, taints: [{key: team, value: red, effect: PreferNoSchedule}]}, {name: b, replicas: 1, template: small, autoscaling: {enabled: true, minReplicas: 1, maxReplicas: 2}}, {name: c, replicas: 1, template: small}]}`))
	w.e.Apply(site, fmt.Sprintf(cluster, "ha", `data: {clusterId: ha}, talos: {version: 1.13.3}, controlPlaneEndpoint: {mode: vip}, topology: {version: "1.33", controlplane: {replicas: 3, template: small, providerRef: {name: proxmox}}}`))
	w.e.Apply(site, fmt.Sprintf(backup, "often", `clusterName: single, schedule: "@every 2s", retention: 2, storageLocation: {type: local, path: first}`))
	w.e.Apply(site, fmt.Sprintf(backup, "once", `clusterName: single, storageLocation: {type: local, path: once}`))
	w.e.Apply(site, fmt.Sprintf(configuration, "host", `networkNamespaceName: network, networkInterfaces: [{name: eth0, macAddress: "02:00:00:00:10:01"}]`))
	w.e.Apply("tour-nam", fmt.Sprintf(configuration, "host", `networkNamespaceName: automated, networkInterfaces: [{name: eth0, macAddress: "02:00:00:00:10:02"}]`))
	w.e.Apply(site, "apiVersion: vitistack.io/v1alpha2\nkind: IPAllocation\nmetadata: {name: reserved}\nspec: {networkNamespaceName: network}\n")
	w.buildGates()
	w.awaitSettled()
	return w
}

// gateSubjects returns the pools and MachineProviders of the gates.
func gateSubjects() map[string]subject {
	all := map[string]subject{}
	for i, gate := range gates {
		all["pool by "+gate] = subject{engine.NetworkPools, "", "pool-" + gate, ""}
		if i < 5 {
			all["provider by "+gate] = subject{engine.MachineProviders, "", "provider-" + gate, "Ready"}
		}
	}
	return all
}

// buildGates creates for each gate a namespace, a pool that does not allow its network, and, where the
// field exists there too, a MachineProvider that does not allow its machine.
func (w *world) buildGates() {
	w.Helper()
	namespaces := []string{site, "spare", "tour-dhcp", "tour-nam", "tour-netbox", "tour-ipam"}
	w.change(subject{engine.NetworkPools, "", "tour", ""}, map[string]string{"allowedNamespaces.list": "[" + strings.Join(namespaces, ",") + "]"})
	selectors := map[string]string{
		"list": "{list: [none]}", "labels": "{selector: {matchLabels: {vitistack.io/gate: none}}}",
		"key":      "{selector: {matchExpressions: [{key: vitistack.io/none, operator: Exists}]}}",
		"operator": "{selector: {matchExpressions: [{key: vitistack.io/gate, operator: DoesNotExist}]}}",
		"values":   "{selector: {matchExpressions: [{key: vitistack.io/gate, operator: In, values: [none]}]}}",
	}
	fields := map[string]string{"providers": "providers: [nam]", "vlans": `vlans: ["4000"]`, "prefixes": "prefixes: [10.0.0.0/30]", "share": "", "bridges": `vlans: ["0-4094"]`}
	for i, gate := range gates {
		namespace := "gate-" + gate
		w.e.CreateNamespace(namespace)
		w.label(namespace, "vitistack.io/gate", gate)
		allowed := selectors[gate]
		if field, isField := fields[gate]; isField {
			w.e.Apply("", fmt.Sprintf(networkPool, "pool-"+gate, strings.TrimSuffix("allowedNamespaces: {list: ["+namespace+"]}, "+field, ", ")))
		} else {
			w.e.Apply("", fmt.Sprintf(networkPool, "pool-"+gate, "allowedNamespaces: "+allowed))
			w.e.Apply("", fmt.Sprintf(machineProvider, "provider-"+gate, "allowedNamespaces: "+allowed))
		}
		vlan := 3000 + i
		if gate == "share" {
			vlan = 100 // that of the network of the site, in another namespace
		}
		w.e.Apply(namespace, fmt.Sprintf(network, "network", fmt.Sprintf("networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.77.%d.0/24, vlanId: %d}}, ipAllocation: {type: static}", i, vlan)))
	}
	w.e.Apply("gate-bridges", fmt.Sprintf(configuration, "bridged", `networkNamespaceName: network, bridge: br9`))
	w.e.Apply("gate-bridges", fmt.Sprintf(machine, "bridged", "template: small, providerRef: {name: kubevirt}, networks: [{name: eth0, networkName: bridged}]"))
}

// label sets a label of a namespace.
func (w *world) label(namespace, key, value string) {
	w.Helper()
	obj := w.e.Get(engine.Namespaces, "", namespace)
	labels := obj.GetLabels()
	labels[key] = value
	obj.SetLabels(labels)
	if _, err := w.e.Client.Resource(engine.Namespaces).Update(w.Context(), obj, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// awaitSettled waits for all subjects.
func (w *world) awaitSettled() {
	w.Helper()
	for name, s := range subjects {
		if s.phase != "" {
			w.before[name] = w.e.UntilPhase(s.resource, s.namespace, s.name, s.phase)
		}
	}
	for _, gate := range gates {
		nn := subject{engine.NetworkNamespaces, "gate-" + gate, "network", ""}
		if gate == "bridges" {
			nn = subject{engine.Machines, "gate-bridges", "bridged", ""}
		}
		w.until(gate+" is excluded", func() string {
			if reason := w.reason(nn); !slices.Contains([]string{"NotInPool", "SegmentOverlap", "BridgeNotAllowed"}, reason) {
				return "reason " + reason
			}
			return ""
		})
	}
}

func (w *world) client(s subject) dynamic.ResourceInterface {
	if s.namespace == "" {
		return w.e.Client.Resource(s.resource)
	}
	return w.e.Client.Resource(s.resource).Namespace(s.namespace)
}

// try changes fields of an object, whose values are YAML, with options for the API server.
func (w *world) try(s subject, fields map[string]string, options metav1.UpdateOptions) error {
	options.FieldValidation = metav1.FieldValidationStrict
	return w.update(s, options, func(obj *unstructured.Unstructured) {
		spec := obj.Object["spec"].(map[string]any)
		for path, value := range fields {
			set(spec, path, parse(strings.ReplaceAll(value, "__BASE__", strings.TrimSuffix(w.e.Network().Addr().String(), ".0"))))
		}
	})
}

// conflicts is how long update goes on after conflicts: about ten seconds.
var conflicts = wait.Backoff{Duration: 50 * time.Millisecond, Steps: 200}

// update changes an object, again and again while a function writes its status at the same time.
func (w *world) update(s subject, options metav1.UpdateOptions, mutate func(*unstructured.Unstructured)) error {
	return retry.RetryOnConflict(conflicts, func() error {
		obj, err := w.client(s).Get(w.Context(), s.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		mutate(obj)
		_, err = w.client(s).Update(w.Context(), obj, options)
		return err
	})
}

// change changes fields of an object.
func (w *world) change(s subject, fields map[string]string) {
	w.Helper()
	if err := w.try(s, fields, metav1.UpdateOptions{}); err != nil {
		w.Fatalf("change %v of %s %s/%s: %v", fields, s.resource.Resource, s.namespace, s.name, err)
	}
}

// until waits until look returns nothing. It returns what look has returned last, if that is not soon.
func (w *world) until(what string, look func() string) string {
	w.Helper()
	return w.within(time.Minute, what, look)
}

// within is until with a time limit.
func (w *world) within(patience time.Duration, what string, look func() string) string {
	w.Helper()
	last := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if last = look(); last == "" {
			return ""
		}
	}
	w.Errorf("%s: not after %s: %s", what, patience, last)
	return last
}

// once runs do for the first call with a name.
func (w *world) once(name string, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.made[name] {
		w.made[name] = true
		do()
	}
}

// condition returns the status, reason and message of a condition.
func (w *world) condition(s subject, name string) (status, reason, message string) {
	obj := w.e.Get(s.resource, s.namespace, s.name)
	if obj == nil {
		return "", "", ""
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == name {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["reason"]), fmt.Sprint(c["message"])
		}
	}
	return "", "", ""
}

func (w *world) reason(s subject) string {
	_, reason, _ := w.condition(s, "Ready")
	return reason
}

// read decodes a file of a simulator. A file that is being written is read again at the next look.
func (w *world) read(to any, path ...string) {
	text, err := os.ReadFile(filepath.Join(append([]string{w.e.Dir, "sim"}, path...)...))
	if err == nil {
		_ = json.Unmarshal(text, to)
	}
}

// pve returns the configuration of a virtual machine of Proxmox VE, and its VMID as vmid.
func (w *world) pve(name string) map[string]string {
	var all struct {
		Machines []struct {
			ID      int
			Pool    string
			Running bool
			Config  map[string]string
		}
	}
	w.read(&all, "proxmox.json")
	for _, m := range all.Machines {
		if m.Config["name"] == name {
			m.Config["vmid"], m.Config["pool"], m.Config["running"] = fmt.Sprint(m.ID), m.Pool, fmt.Sprint(m.Running)
			return m.Config
		}
	}
	return map[string]string{}
}

// talosConfig returns the machine configuration that a node has on its disk.
func (w *world) talosConfig(node string) string {
	files, _ := filepath.Glob(filepath.Join(w.e.Dir, "sim", "talos", "machines", "*.json"))
	for _, file := range files {
		var r struct {
			Config []byte `json:"config"`
		}
		w.read(&r, "talos", "machines", filepath.Base(file))
		if strings.Contains(string(r.Config), "hostname: "+node+"\n") {
			return string(r.Config)
		}
	}
	return ""
}

// shown returns an empty string if the REST API shows a text about a cluster. It asks at most once a
// second, as the gateway limits that.
func (w *world) shown(name, text string) string {
	if time.Since(w.askedAt) > time.Second {
		w.askedAt, w.clusters = time.Now(), nil
		w.clusters, _ = w.e.Ask("api/v1/resources?type=cluster&name=" + name)
	}
	return has(string(w.clusters), text)
}

// copyProvider creates a MachineProvider with the spec of another, for changes that must not affect the
// machines of the stand.
func (w *world) copyProvider(name string) {
	w.Helper()
	var from *unstructured.Unstructured
	feed.Until(w.T, "MachineProvider "+name+" exists", func() (bool, string) {
		from = w.e.Get(engine.MachineProviders, "", name)
		return from != nil, ""
	})
	to := &unstructured.Unstructured{Object: map[string]any{"apiVersion": from.GetAPIVersion(), "kind": from.GetKind(), "spec": from.Object["spec"]}}
	to.SetName("later-" + name)
	delete(to.Object["spec"].(map[string]any), "default")
	if _, err := w.e.Client.Resource(engine.MachineProviders).Create(w.Context(), to, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// has returns an empty string if a text contains a part, and otherwise the text.
func has(text, part string) string {
	if strings.Contains(text, part) {
		return ""
	}
	return fmt.Sprintf("want %q in %s", part, text)
}

// is returns an empty string if two values are equal.
func is(got, want any) string {
	if fmt.Sprint(got) == fmt.Sprint(want) {
		return ""
	}
	return fmt.Sprintf("got %v, want %v", got, want)
}

// field reads a field of an object, or nil without the object.
func (w *world) field(s subject, path string) any {
	obj := w.e.Get(s.resource, s.namespace, s.name)
	if obj == nil {
		return nil
	}
	return get(obj.Object, path)
}

// goes deletes an object, and waits until it is gone.
func (w *world) goes(s subject) {
	w.Helper()
	w.e.Delete(s.resource, s.namespace, s.name)
	feed.Until(w.T, s.name+" is deleted", func() (bool, string) {
		obj := w.e.Get(s.resource, s.namespace, s.name)
		return obj == nil, fmt.Sprint(obj)
	})
}

// decode returns the value of a key of a Secret.
func decode(encoded string) []byte {
	text, _ := base64.StdEncoding.DecodeString(encoded)
	return text
}

package cause_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/vitistack/stack/apis/cause"
)

// noon is the time at which every condition of the tests changed.
var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// setOf reads objects from lines of the form
//
//	Kind name | status reason: message | spec or status fields as YAML flow mappings
//
// All are in namespace shop. The status of the condition is True, False, or - for none.
func setOf(t *testing.T, lines string) *cause.Set {
	t.Helper()
	var list []unstructured.Unstructured
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, objectOf(t, line))
		}
	}
	set, err := cause.DecodeSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func objectOf(t *testing.T, line string) unstructured.Unstructured {
	t.Helper()
	fields := strings.SplitN(line+" | | ", "|", 3)
	kind, name, _ := strings.Cut(strings.TrimSpace(fields[0]), " ")
	u := unstructured.Unstructured{Object: map[string]any{}}
	if extra := strings.Trim(fields[2], " |"); extra != "" {
		if err := yaml.Unmarshal([]byte(extra), &u.Object); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	version := map[string]string{"NetworkNamespace": "v1alpha2", "IPAllocation": "v1alpha2"}[kind]
	if version == "" {
		version = "v1alpha1"
	}
	u.SetKind(kind)
	u.SetAPIVersion("vitistack.io/" + version)
	if kind == "Lease" || kind == "VirtualMachine" {
		u.SetAPIVersion("example.com/v1")
	}
	u.SetName(name)
	if kind != "MachineProvider" && kind != "ClusterTemplate" {
		u.SetNamespace("shop")
	}
	_ = unstructured.SetNestedField(u.Object, noon.Format(time.RFC3339), "metadata", "creationTimestamp")
	if status, rest, ok := strings.Cut(strings.TrimSpace(fields[1]), " "); ok && status != "-" {
		reason, message, _ := strings.Cut(rest, ": ")
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		conditions = append(conditions, map[string]any{
			"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": noon.Format(time.RFC3339),
		})
		if err := unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions"); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

const shop = `
	KubernetesCluster web | False WaitingForMachines: 1 of 3 machines runs; web-cp-1 has no address
	Machine web-cp-0 | True MachineRunning: runs | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}, status: {provider: pve}}
	Machine web-cp-1 | False WaitingForAddress: PoolExhausted: no address is free | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}
	Machine web-cp-2 | False WaitingForAddress: PoolExhausted: no address is free | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}
	NetworkConfiguration web-cp-0 | True NetworkConfigured | {spec: {networkNamespaceName: net}}
	NetworkConfiguration web-cp-1 | False PoolExhausted: no address is free | {spec: {networkNamespaceName: net}}
	NetworkConfiguration web-cp-2 | False PoolExhausted: no address is free | {spec: {networkNamespaceName: net}}
	NetworkNamespace net | True Provisioned: 10.0.0.0/30
	MachineProvider pve | True Healthy
`

// templated is a cluster of a ClusterTemplate. The fields that the ClusterTemplate gives replace TEMPLATE.
const templated = `KubernetesCluster web | False KubernetesVersionUnknown: write 1.34 | {metadata: {annotations: {vitistack.io/cluster-template: '{"name":"standard","revision":"a"}'}, managedFields: [` +
	`{manager: kubectl, fieldsV1: {"f:spec": {"f:templateRef": {"f:name": {}}, "f:data": {}}}}, {manager: vitistack-template, fieldsV1: {"f:spec": {TEMPLATE}}}, {manager: bootstrap-talos, subresource: status, fieldsV1: {"f:status": {}}}]}}`

// TestRemedyOfLockedField checks that no remedy says to change an immutable field.
func TestRemedyOfLockedField(t *testing.T) {
	t.Parallel()
	for kind, reasons := range map[string][]string{
		"KubernetesCluster":    {"NetworkNamespaceNotFound"},
		"NetworkConfiguration": {"NetworkNamespaceNotFound"},
		"IPAllocation":         {"NetworkNamespaceNotFound", "NetworkNamespaceAmbiguous", "NetworkNotStatic", "AddressTaken", "AddressOutsidePool"},
		"EtcdBackup":           {"ClusterNotFound"},
	} {
		for _, reason := range reasons {
			if got := cause.Advise(kind, reason).Remedy; !strings.Contains(got, "elete ") || !strings.Contains(got, "create it") {
				t.Errorf("%s of a %s: the field cannot be changed, and the remedy is %q", reason, kind, got)
			}
		}
	}
}

func TestChain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because, objects string
		from             cause.Ref
		want             []string
		owner            cause.Role
	}{
		"Pool": {"a full pool stops the machine, and that the cluster", shop, cause.Ref{Kind: "KubernetesCluster", Namespace: "shop", Name: "web"},
			[]string{"KubernetesCluster shop/web", "Machine shop/web-cp-1", "NetworkConfiguration shop/web-cp-1"}, cause.NetworkTeam},
		"Ready":  {"nothing is wrong", shop, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "web-cp-0"}, []string{"Machine shop/web-cp-0"}, cause.NoAction},
		"Absent": {"the caller may not read it, or it does not exist", shop, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, nil, ""},
		"Mistake": {"a mistake in the spec is the cause, whatever is below", `
			Machine db | False TemplateNotFound: template "huge" does not exist: write small, medium or large
			NetworkConfiguration db | False NetworkNotReady: waits for the network`,
			cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db"}, cause.Requester},
		"Network": {"the network has the remedy", `
			Machine db | False WaitingForAddress: NetworkNotReady: NotInPool
			NetworkConfiguration db | False NetworkNotReady: NotInPool
			NetworkNamespace net | False NotInPool: VLAN 7 is not allowed: write 100-199`,
			cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db", "NetworkConfiguration shop/db", "NetworkNamespace shop/net"}, cause.Requester},
		"Several": {"the network is not named, and there are two: which one is unknown", `
			NetworkConfiguration db | False NetworkNotReady: waits
			NetworkNamespace a | False NotInPool: VLAN 7
			NetworkNamespace b | False NotInPool: VLAN 7`,
			cause.Ref{Kind: "NetworkConfiguration", Namespace: "shop", Name: "db"}, []string{"NetworkConfiguration shop/db"}, cause.NoAction},
		"Offline": {"the hypervisor does not answer", `
			Machine db | False ProviderUnavailable: no answer | {spec: {providerRef: {name: pve}}}
			MachineProvider pve | False Unreachable: dial tcp: connection refused`,
			cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db", "MachineProvider pve"}, cause.PlatformTeam},
		"Action": {"a machine that needs an action explains more than one that waits", `
			KubernetesCluster web | False WaitingForMachines: web-cp-0 starts
			Machine web-cp-0 | False Starting: starts | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}
			Machine web-cp-1 | False StorageClassNotFound: gold | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}`,
			cause.Ref{Kind: "KubernetesCluster", Namespace: "shop", Name: "web"}, []string{"KubernetesCluster shop/web", "Machine shop/web-cp-1"}, cause.Requester},
		"Named": {"of two that wait, the message names the second", `
			KubernetesCluster web | False WaitingForMachines: waits for web-cp-1
			Machine web-cp-0 | False Starting: starts | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}
			Machine web-cp-1 | False Starting: starts | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}`,
			cause.Ref{Kind: "KubernetesCluster", Namespace: "shop", Name: "web"}, []string{"KubernetesCluster shop/web", "Machine shop/web-cp-1"}, cause.NoAction},
		"Circle": {"the machine waits for its cluster, and the cluster for its machines", `
			KubernetesCluster web | False WaitingForMachines: waits for web-cp-0
			Machine web-cp-0 | False WaitingForMachineConfig: waits | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}`,
			cause.Ref{Kind: "Machine", Namespace: "shop", Name: "web-cp-0"}, []string{"Machine shop/web-cp-0", "KubernetesCluster shop/web"}, cause.NoAction},
		"Backup": {"the backup waits for its cluster", `
			EtcdBackup nightly | False ClusterNotReady: waits | {spec: {clusterName: web}}
			KubernetesCluster web | False InvalidTopology: write another name`,
			cause.Ref{Kind: "EtcdBackup", Namespace: "shop", Name: "nightly"}, []string{"EtcdBackup shop/nightly", "KubernetesCluster shop/web"}, cause.Requester},
		"InUse": {"the deletion of a network waits for the machine's", `
			NetworkNamespace net | False InUse: NetworkConfiguration db | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z"}}
			NetworkConfiguration db | False Deleting: x | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z", ownerReferences: [{apiVersion: vitistack.io/v1alpha1, kind: Machine, name: db, uid: u, controller: true}]}, spec: {networkNamespaceName: net}}
			Machine db | False Protected: set spec.protected to false | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z"}}`,
			cause.Ref{Kind: "NetworkNamespace", Namespace: "shop", Name: "net"}, []string{"NetworkNamespace shop/net", "NetworkConfiguration shop/db", "Machine shop/db"}, cause.Requester},
		"Kept": {"the machine in the network is not being deleted", `
			NetworkNamespace net | False InUse: waiting for NetworkConfiguration db to be deleted | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z"}}
			NetworkConfiguration db | True NetworkConfigured: x | {metadata: {ownerReferences: [{apiVersion: vitistack.io/v1alpha1, kind: Machine, name: db, uid: u, controller: true}]}, spec: {networkNamespaceName: net}}
			Machine db | True MachineRunning: runs`,
			cause.Ref{Kind: "NetworkNamespace", Namespace: "shop", Name: "net"}, []string{"NetworkNamespace shop/net"}, cause.Requester},
		"Going": {"the NetworkConfiguration goes with its machine", `
			NetworkNamespace net | False InUse: waiting for NetworkConfiguration db to be deleted | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z"}}
			NetworkConfiguration db | True NetworkConfigured: x | {metadata: {ownerReferences: [{apiVersion: vitistack.io/v1alpha1, kind: Machine, name: db, uid: u, controller: true}]}, spec: {networkNamespaceName: net}}
			Machine db | False Deleting: stops | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z"}}`,
			cause.Ref{Kind: "NetworkNamespace", Namespace: "shop", Name: "net"}, []string{"NetworkNamespace shop/net"}, cause.NoAction},
		"KeptProvider": {"machines run there", `
			MachineProvider pve | False InUse: 1 machine | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z"}}
			Machine db | True MachineRunning: runs | {status: {provider: pve}}`,
			cause.Ref{Kind: "MachineProvider", Name: "pve"}, []string{"MachineProvider pve"}, cause.PlatformTeam},
		"NewInDeleted": {"a new machine needs an address of a network that is being deleted", `
			NetworkNamespace net | False InUse: waiting for NetworkConfiguration db to be deleted | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z"}}
			NetworkConfiguration db | False NetworkDeleting: NetworkNamespace net is being deleted | {spec: {networkNamespaceName: net}}`,
			cause.Ref{Kind: "NetworkConfiguration", Namespace: "shop", Name: "db"}, []string{"NetworkConfiguration shop/db", "NetworkNamespace shop/net"}, cause.Requester},
		"Changed":  {"the next reconcile reads the new spec", `Machine db | True MachineRunning: runs | {metadata: {generation: 2}, status: {observedGeneration: 1}}`, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db"}, cause.NoAction},
		"Paused":   {"no function reads the new spec", `Machine db | True MachineRunning: runs | {metadata: {generation: 2, annotations: {vitistack.io/paused: ""}}, status: {observedGeneration: 1}}`, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db"}, cause.PlatformTeam},
		"Deleted":  {"no function deletes it", `Machine db | True MachineRunning: runs | {metadata: {deletionTimestamp: "2026-11-24T12:00:00Z", annotations: {vitistack.io/paused: ""}}}`, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db"}, cause.PlatformTeam},
		"Frozen":   {"it is as its spec wants it", `Machine db | True MachineRunning: runs | {metadata: {annotations: {vitistack.io/paused: ""}}}`, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db"}, cause.NoAction},
		"New":      {"no function has seen it", `Machine db`, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db"}, cause.NoAction},
		"Stopped":  {"it is off because its spec says so", `Machine db | False Stopped: off`, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db"}, cause.NoAction},
		"Template": {"the version is from the ClusterTemplate, which the platform team corrects", strings.Replace(templated, "TEMPLATE", `"f:topology": {"f:version": {}}`, 1), cause.Ref{Kind: "KubernetesCluster", Namespace: "shop", Name: "web"}, []string{"KubernetesCluster shop/web"}, cause.PlatformTeam},
		"Own":      {"the manifest of the cluster has a version of its own", strings.Replace(strings.Replace(templated, "TEMPLATE", `"f:topology": {"f:version": {}}`, 1), `"f:data": {}`, `"f:topology": {"f:controlplane": {"f:version": {}}}`, 1), cause.Ref{Kind: "KubernetesCluster", Namespace: "shop", Name: "web"}, []string{"KubernetesCluster shop/web"}, cause.Requester},
		"Neither":  {"the ClusterTemplate gives other fields", strings.Replace(templated, "TEMPLATE", `"f:topology": {"f:workers": {}}`, 1), cause.Ref{Kind: "KubernetesCluster", Namespace: "shop", Name: "web"}, []string{"KubernetesCluster shop/web"}, cause.Requester},
		"Rollout": {"the rollout stops at a cluster with a version of the ClusterTemplate", strings.Replace(templated, "TEMPLATE", `"f:topology": {"f:version": {}}`, 1) + `
			ClusterTemplate standard | False RolloutStopped: KubernetesCluster web | {status: {updating: [{namespace: shop, name: web}]}}`,
			cause.Ref{Kind: "ClusterTemplate", Name: "standard"}, []string{"ClusterTemplate standard", "KubernetesCluster shop/web"}, cause.PlatformTeam},
		"IPAM":    {"an IPAM chooses its reasons", `NetworkNamespace net | False NoSuchSite: write a site`, cause.Ref{Kind: "NetworkNamespace", Namespace: "shop", Name: "net"}, []string{"NetworkNamespace shop/net"}, cause.NetworkTeam},
		"Unknown": {"a later version of a function has more reasons", `Machine db | False Melted: write something colder`, cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}, []string{"Machine shop/db"}, cause.PlatformTeam},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain := setOf(t, tc.objects).Chain(tc.from)
			var got []string
			for _, l := range chain {
				got = append(got, l.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Fatalf("%s: -want +got\n%s", tc.because, diff)
			}
			if len(chain) > 0 && (chain[len(chain)-1].Owner != tc.owner || chain[len(chain)-1].Remedy == "") {
				t.Errorf("%s: owner %q with the remedy %q, want owner %q", tc.because, chain[len(chain)-1].Owner, chain[len(chain)-1].Remedy, tc.owner)
			}
		})
	}
}

func TestAttention(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because, objects string
		after            time.Duration
		want             []string
	}{
		"Grouped": {"one cause is one line, with what waits for it", shop, time.Second,
			[]string{"network team: NetworkConfiguration shop/web-cp-1 PoolExhausted, 1 other, blocks KubernetesCluster shop/web, Machine shop/web-cp-1, Machine shop/web-cp-2"}},
		"Mistakes": {"two mistakes are two lines, also in one network", `
			IPAllocation a | False AddressTaken: held by b | {spec: {networkNamespaceName: net}}
			IPAllocation c | False AddressTaken: held by d | {spec: {networkNamespaceName: net}}
			NetworkNamespace net | True Provisioned`,
			time.Second, []string{"requester: IPAllocation shop/a AddressTaken", "requester: IPAllocation shop/c AddressTaken"}},
		"Patience":   {"a wait of a minute is not a problem", `Machine db | False Starting: starts`, time.Minute, nil},
		"Stuck":      {"a wait of an hour is one", `Machine db | False Starting: starts`, time.Hour, []string{"platform team: Machine shop/db Starting"}},
		"SilentIPAM": {"an IPAM has not answered for an hour", `NetworkNamespace net | False Provisioning: waiting for IPAM corporate`, time.Hour, []string{"network team: NetworkNamespace shop/net Provisioning"}},
		"Stopped":    {"it is off on purpose", `Machine db | False Stopped: off`, time.Hour, nil},
		"Ready":      {"nothing is wrong", `Machine db | True MachineRunning: runs`, time.Hour, nil},
		"Warning": {"a machine that runs needs a restart", `
			Machine db | True MachineRunning: runs | {status: {conditions: [{type: RestartRequired, status: "True", reason: SpecChanged, message: cpu, lastTransitionTime: "2026-11-24T12:00:00Z"}]}}`,
			time.Second, []string{"requester: Machine shop/db SpecChanged"}},
		"Frozen": {"nothing is wrong yet, but no function changes the machines", `
			Machine a | True MachineRunning: runs | {metadata: {annotations: {vitistack.io/paused: moving}}}
			Machine b | True MachineRunning: runs`,
			time.Second, []string{"platform team: Machine shop/a PausedByAnnotation"}},
		"FrozenWait": {"a machine that is paused has another remedy than one of its cluster with the same reason, and one entry", `
			KubernetesCluster web | False WaitingForMachines: waits
			Machine web-0 | False StorageClassNotFound: gold | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}
			Machine web-1 | False StorageClassNotFound: gold | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}, annotations: {vitistack.io/paused: ""}}}`,
			time.Second, []string{"requester: Machine shop/web-0 StorageClassNotFound, blocks KubernetesCluster shop/web", "platform team: Machine shop/web-1 StorageClassNotFound"}},
		"FrozenAbove": {"a cluster that waits for another cause is paused, too", `
			KubernetesCluster web | False WaitingForMachines: waits | {metadata: {annotations: {vitistack.io/paused: ""}}}
			Machine web-0 | False StorageClassNotFound: gold | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}`,
			time.Second, []string{"requester: Machine shop/web-0 StorageClassNotFound, blocks KubernetesCluster shop/web", "platform team: KubernetesCluster shop/web PausedByAnnotation"}},
		"Unread": {"no function reads the annotation of a MachineProvider", `MachineProvider pve | True Healthy: answers | {metadata: {annotations: {vitistack.io/paused: ""}}}`, time.Hour, nil},
		"Summary": {"the reason of Ready is not repeated for the condition that it sums up", `
			KubernetesCluster web | False EtcdLost: restore | {status: {conditions: [{type: EtcdHealthy, status: "False", reason: EtcdLost, message: restore, lastTransitionTime: "2026-11-24T12:00:00Z"}]}}`,
			time.Second, []string{"platform team: KubernetesCluster shop/web EtcdLost"}},
		"Order": {"roles first, then age", `
			MachineProvider pve | False Unreachable: no answer
			NetworkNamespace net | False PoolExhausted: full
			Machine db | False TemplateNotFound: huge`,
			time.Second, []string{"requester: Machine shop/db TemplateNotFound", "network team: NetworkNamespace shop/net PoolExhausted", "platform team: MachineProvider pve Unreachable"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, p := range setOf(t, tc.objects).Attention(noon.Add(tc.after)) {
				line := string(p.Owner) + ": " + p.String() + " " + p.Reason
				if len(p.Others) > 0 {
					line += ", 1 other"
				}
				for i, b := range p.Blocks {
					line += map[bool]string{true: ", blocks ", false: ", "}[i == 0] + b.String()
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.because, diff)
			}
		})
	}
}

func TestTree(t *testing.T) {
	t.Parallel()
	const objects = `
		KubernetesCluster web | True ClusterRunning | {status: {secrets: {kubeconfig: web-kubeconfig}}}
		Machine web-cp-0 | True MachineRunning | {metadata: {uid: u1, labels: {cluster.vitistack.io/cluster-name: web}}, status: {phase: Running, provider: pve, ipAddresses: [10.0.0.3]}}
		Machine web-cp-10 | True MachineRunning | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}
		Machine web-cp-2 | False Starting | {metadata: {labels: {cluster.vitistack.io/cluster-name: web}}}
		NetworkConfiguration web-cp-0 | True NetworkConfigured | {metadata: {ownerReferences: [{kind: Machine, name: web-cp-0, uid: u1, controller: true}]}, status: {networkInterfaces: [{name: eth0, macAddress: "52:54:00:00:00:01", ipv4Addresses: [10.0.0.3], dhcpReserved: true}]}}
		IPAllocation web-cp-0-eth0 | True Allocated | {metadata: {uid: u2}, spec: {networkNamespaceName: net, networkConfigurationName: web-cp-0}, status: {address: 10.0.0.3}}
		Lease net-10.0.0.3 | | {metadata: {labels: {vitistack.io/holder: u2}}}
		VirtualMachine web-cp-0 | | {metadata: {labels: {vitistack.io/machine: web-cp-0}}, status: {printableStatus: Running}}
		NetworkNamespace net | True Provisioned | {status: {ipv4Prefix: 10.0.0.0/24, vlanId: 7}}
		MachineProvider pve | True Healthy`
	tree, ok := setOf(t, objects).Tree(cause.Ref{Kind: "KubernetesCluster", Namespace: "shop", Name: "web"})
	if !ok {
		t.Fatal("the Set has the cluster")
	}
	want := `KubernetesCluster shop/web Ready
  Secret shop/web-kubeconfig not found
  NetworkNamespace shop/net shared Ready 10.0.0.0/24, VLAN 7
  Machine shop/web-cp-0 Running 10.0.0.3
    MachineProvider pve shared Ready
    NetworkConfiguration shop/web-cp-0 Ready
      interface eth0: 52:54:00:00:00:01, 10.0.0.3, reserved in Kea
      IPAllocation shop/web-cp-0-eth0 Ready 10.0.0.3
        Lease shop/net-10.0.0.3
    VirtualMachine shop/web-cp-0 Running
  Machine shop/web-cp-2 Starting
    NetworkConfiguration shop/web-cp-2 not found
  Machine shop/web-cp-10 Ready
    NetworkConfiguration shop/web-cp-10 not found
`
	if diff := cmp.Diff(want, draw(tree, "")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, ok := setOf(t, objects).Tree(cause.Ref{Kind: "Machine", Namespace: "shop", Name: "none"}); ok {
		t.Error("the Set does not have the machine")
	}
}

func draw(n cause.Node, indent string) string {
	line := indent + n.String()
	if n.Shared {
		line += " shared"
	}
	for _, text := range []string{n.State, n.Detail} {
		if text != "" {
			line += " " + text
		}
	}
	line += "\n"
	for _, p := range n.Parts {
		line += indent + "  " + p.Name + ": " + p.Detail + "\n"
	}
	for _, below := range n.Below {
		line += draw(below, indent+"  ")
	}
	return line
}

// TestPaused says since when an object is paused, and how that ends.
func TestPaused(t *testing.T) {
	t.Parallel()
	set := setOf(t, `Machine db | True MachineRunning: runs | {metadata: {annotations: {vitistack.io/paused: moving}, managedFields: [`+
		`{manager: a, time: "2026-11-24T09:00:00Z", fieldsV1: {"f:spec": {}}},`+
		`{manager: b, time: "2026-11-24T10:00:00Z", fieldsV1: {"f:metadata": {"f:annotations": {"f:vitistack.io/paused": {}}}}},`+
		`{manager: c, time: "2026-11-24T11:00:00Z", fieldsV1: {"f:status": {}}}]}}`)
	all := set.Find(cause.Ref{Kind: "Machine", Namespace: "shop", Name: "db"}).Warnings()
	if len(all) != 1 || all[0].Type != cause.WarningPaused || all[0].Since.Hour() != 10 || !strings.HasSuffix(all[0].Remedy, ": kubectl annotate machine db -n shop vitistack.io/paused-") {
		t.Errorf("the warnings are %+v", all)
	}
	const ofWeb = `metadata: {labels: {cluster.vitistack.io/cluster-name: web}, annotations: {vitistack.io/paused: moving}}`
	for _, condition := range []string{"True MachineRunning: runs", "False StorageClassNotFound: gold"} {
		all := setOf(t, `
			KubernetesCluster web | True ClusterRunning: runs
			Machine web-0 | `+condition+` | {`+ofWeb+`}
			Machine web-1 | `+condition+` | {`+ofWeb+`}`).Attention(noon)
		if len(all) != 1 || !strings.HasSuffix(all[0].Remedy, ": kubectl annotate machine web-0 web-1 -n shop vitistack.io/paused-") {
			t.Errorf("%s: one command removes the annotation of both machines, but the problems are %+v", condition, all)
		}
	}
}

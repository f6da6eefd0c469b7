package command_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/stand/buffer"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/command"
)

// stuck is a cluster that waits for a machine in a network without a free address.
const stuck = `{apiVersion: vitistack.io/v1alpha2, kind: NetworkNamespace, metadata: {name: net}, spec: {datacenterIdentifier: no-west-az1, supervisorIdentifier: shop, networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24}}, ipAllocation: {type: static}},
  status: {observedGeneration: 1, provisioningPhase: Ready, ipv4Prefix: 10.0.0.0/24, conditions: [{type: Ready, status: "True", reason: Provisioned, message: 10.0.0.0/24, lastTransitionTime: "2026-11-24T12:00:00Z"}]}}
---
{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: shop}, spec: {data: {}, topology: {version: "1.33", controlplane: {replicas: 1, version: "1.33"}, workers: [{name: w, replicas: 1, version: "1.33"}]}},
  status: {observedGeneration: 1, phase: Running, version: 1.33.1, talosVersion: 1.13.9, secrets: {kubeconfig: shop-kubeconfig, talosconfig: shop-talosconfig}, conditions: [{type: Ready, status: "False", reason: WaitingForMachines, message: "waiting for shop-cp-0", lastTransitionTime: "2026-11-24T12:00:00Z"}]}}
---
{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: shop-cp-0, labels: {cluster.vitistack.io/cluster-name: shop}}, spec: {template: small},
  status: {observedGeneration: 1, phase: Pending, conditions: [{type: Ready, status: "False", reason: WaitingForAddress, message: "PoolExhausted: no address is free", lastTransitionTime: "2026-11-24T12:00:00Z"}]}}
---
{apiVersion: vitistack.io/v1alpha1, kind: NetworkConfiguration, metadata: {name: shop-cp-0}, spec: {networkNamespaceName: net, networkInterfaces: [{name: eth0}]},
  status: {observedGeneration: 1, phase: Pending, conditions: [{type: Ready, status: "False", reason: PoolExhausted, message: "no address is free", lastTransitionTime: "2026-11-24T12:00:00Z"}]}}`

func TestLook(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(stuck)
	for name, tc := range map[string]struct {
		because string
		args    []string
		want    []string
		fails   bool
	}{
		"Why":      {"the chain ends at the remedy", []string{"why", "kc/shop"}, []string{"KubernetesCluster " + e.namespace + "/shop is not Ready: WaitingForMachines", "Cause:  NetworkConfiguration " + e.namespace + "/shop-cp-0", "Turn:   network team", "enlarge the pool"}, false},
		"TwoWords": {"as in kubectl get", []string{"why", "kubernetesclusters", "shop"}, []string{"Turn:   network team"}, false},
		"Ready":    {"nothing is wrong", []string{"why", "nn/net"}, []string{"is Ready: Provisioned"}, false},
		"Names":    {"the cause is last", []string{"why", "kc/shop", "-o", "name"}, []string{"kubernetescluster/shop\nmachine/shop-cp-0\nnetworkconfiguration/shop-cp-0\n"}, false},
		"JSON":     {"for scripts", []string{"why", "kc/shop", "-o", "json"}, []string{`"turn": "network team"`}, false},
		"Absent":   {"the message has the way to the name", []string{"why", "machine/nope"}, []string{`Machine "nope" does not exist in namespace ` + e.namespace, "kubectl get machines -A"}, true},
		"NoScope":  {"it is in no namespace", []string{"why", "mp/nope"}, []string{"MachineProvider \"nope\" does not exist: kubectl get machineproviders lists the existing ones\n"}, true},
		"NoKind":   {"the message lists the kinds", []string{"why", "pod/x"}, []string{`no kind "pod"`, "machine (ma)"}, true},
		"NoName":   {"the message has an example", []string{"why", "shop"}, []string{"write KIND/NAME, for example machine/web"}, true},
		"Format":   {"the message lists the formats", []string{"why", "kc/shop", "-o", "wide"}, []string{"write json, yaml, name"}, true},
		"Status":   {"one entry for one cause", []string{"status"}, []string{"KubernetesCluster     0 of 1 Ready", "The network team has to act:", "blocks KubernetesCluster"}, false},
		"YAML":     {"for scripts", []string{"status", "-o", "yaml"}, []string{"turn: network team", "kind: NetworkConfiguration"}, false},
		"Tree":     {"everything below", []string{"tree", "kc/shop"}, []string{"├ uses NetworkNamespace net", "└ Machine shop-cp-0", "NetworkConfiguration shop-cp-0"}, false},
		"Argument": {"it takes none", []string{"status", "shop"}, []string{"takes no argument"}, true},
		"Flag":     {"the message leads to the list", []string{"status", "--all"}, []string{"kubectl viti status --help"}, true},
		"Nowhere":  {"a wrong name is not a namespace in which all is well", []string{"status", "-n", "nope"}, []string{`Namespace "nope" does not exist`, "kubectl get namespaces"}, true},
		"Down":     {"the address is in the message", []string{"status", "--server", "http://127.0.0.1:1"}, []string{"http://127.0.0.1:1 does not answer", "select another cluster with --kubeconfig or --context"}, true},
		"Empty":    {"a variable of a script is empty", []string{"upgrade", "shop", "--to", ""}, []string{"--to is empty: write a value, or leave it out"}, true},
		"EmptyNS":  {"the namespace of the context is another one", []string{"status", "-n", ""}, []string{"--namespace is empty"}, true},
		"Stranger": {"a user without rights does not read that all is well", []string{"status", "--as", "nobody"}, []string{"you may list no objects of the stack in namespace " + e.namespace, "vitistack-view"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := e.run(tc.args...)
			if (code != 0) != tc.fails {
				t.Fatalf("%s: the code is %d: %s", tc.because, code, errs)
			}
			for _, want := range tc.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("%s: %q is missing in\n%s%s", tc.because, want, out, errs)
				}
			}
			if tc.fails && out != "" {
				t.Errorf("%s: the standard output of an error is %q", tc.because, out)
			}
		})
	}
	var parsed struct{ Chain []struct{ Kind string } }
	if err := json.Unmarshal([]byte(e.must("why", "kc/shop", "-o", "json")), &parsed); err != nil || len(parsed.Chain) != 3 {
		t.Errorf("the JSON has %d links: %v", len(parsed.Chain), err)
	}
}

func TestStatusFollows(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(stuck)
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := &buffer.Buffer{}, make(chan int, 1)
	go func() {
		ended <- command.Run(ctx, "dev", []string{"--kubeconfig", e.kubeconfig, "status", "-w"}, command.Streams{Out: out, Err: io.Discard})
	}()
	feed.Until(t, "the first overview", func() (bool, string) { return strings.Contains(out.String(), "PoolExhausted"), out.String() })
	e.create(`{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: huge}, spec: {template: large},
  status: {observedGeneration: 1, phase: Failed, conditions: [{type: Ready, status: "False", reason: InsufficientResources, message: "no host has room", lastTransitionTime: "2026-11-24T12:00:00Z"}]}}`)
	feed.Until(t, "the new problem", func() (bool, string) { return strings.Contains(out.String(), "InsufficientResources"), out.String() })
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("Ctrl-C ends it with the code %d", code)
	}
}

func secret(name, key, value string) string {
	return `{apiVersion: v1, kind: Secret, metadata: {name: ` + name + `}, data: {` + key + `: ` + base64.StdEncoding.EncodeToString([]byte(value)) + `}}`
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(stuck)
	path := filepath.Join(t.TempDir(), "config")
	if _, errs, code := e.run("kubeconfig", "shop"); code == 0 || !strings.Contains(errs, "kubectl viti why kubernetescluster/shop") {
		t.Errorf("there is no Secret yet: %d, %s", code, errs)
	}
	const config = `apiVersion: v1
kind: Config
current-context: admin@shop
clusters: [{name: shop, cluster: {server: "https://10.0.0.5:6443"}}]
users: [{name: admin, user: {token: tok3n}}]
contexts: [{name: admin@shop, context: {cluster: shop, user: admin}}]
`
	e.create(secret("shop-kubeconfig", "kubeconfig", config) + "\n---\n" + secret("shop-talosconfig", "talosconfig", "context: shop\ncontexts: {shop: {endpoints: [10.0.0.5], key: a2V5}}\n"))
	if got := e.must("kubeconfig", "shop"); got != config {
		t.Errorf("it is printed as it is: got %q", got)
	}
	if got := e.must("kubeconfig", "kubernetescluster/shop"); got != config {
		t.Errorf("the kind may be written: got %q", got)
	}
	for _, want := range []string{" has the context mine", " had already the context mine"} {
		if got := e.must("kubeconfig", "shop", "--merge", "--file", path, "--name", "mine"); !strings.Contains(got, want) || strings.Contains(got, "tok3n") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if merged, err := clientcmd.LoadFromFile(path); err != nil || merged.AuthInfos["mine"].Token != "tok3n" || merged.CurrentContext != "mine" {
		t.Errorf("merged: %v", err)
	}
	if got := e.must("talosconfig", "shop", "--merge", "--file", path+"-talos"); !strings.Contains(got, "talosctl --context "+e.namespace+"-shop") {
		t.Errorf("the context has the namespace: %s", got)
	}
	e.refuses([]refusal{
		{"the flag is for a merge", []string{"kubeconfig", "shop", "--use"}, "--merge"},
		{"there is no such cluster", []string{"talosconfig", "kc/nope"}, "KubernetesCluster \"nope\" does not exist"},
		{"a Machine has no kubeconfig", []string{"kubeconfig", "machine/shop-cp-0"}, "machine/shop-cp-0 is no KubernetesCluster: write the name of one"},
		{"the cluster is missing", []string{"kubeconfig"}, "write kubectl viti kubeconfig CLUSTER"},
		{"others may not read Secrets", []string{"kubeconfig", "shop", "--as", "nobody"}, "vitistack-edit"},
	})
}

func TestChange(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(stuck + "\n---\n" + `{apiVersion: vitistack.io/v1alpha1, kind: EtcdBackup, metadata: {name: nightly}, spec: {clusterName: shop, storageLocation: {type: local}}}`)
	for _, tc := range []struct {
		because    string
		args       []string
		kind, name string
		path       []string
		want       any
		says       string
	}{
		{"deletions are refused", []string{"protect", "machine/shop-cp-0"}, "machine", "shop-cp-0", []string{"spec", "protected"}, true, "until kubectl viti unprotect machine/shop-cp-0"},
		{"it is protected already", []string{"protect", "machine/shop-cp-0"}, "machine", "shop-cp-0", []string{"spec", "protected"}, true, "No change: "},
		{"nothing is changed", []string{"unprotect", "ma", "shop-cp-0", "--dry-run"}, "machine", "shop-cp-0", []string{"spec", "protected"}, true, "(dry run)"},
		{"deletions are allowed", []string{"unprotect", "ma", "shop-cp-0"}, "machine", "shop-cp-0", []string{"spec", "protected"}, false, "can be deleted again"},
		{"a network too", []string{"protect", "nn/net"}, "networknamespace", "net", []string{"spec", "protected"}, true, "NetworkNamespace net is protected"},
		{"a name alone is a cluster's", []string{"pause", "shop"}, "kubernetescluster", "shop", []string{"spec", "paused"}, true, "until kubectl viti resume shop"},
		{"the command in the answer leads to the same cluster", []string{"pause", "shop", "--context", "x", "-n", e.namespace}, "kubernetescluster", "shop", []string{"spec", "paused"}, true,
			"until kubectl viti resume shop --kubeconfig " + e.kubeconfig + " --context x -n " + e.namespace + ": scaling"},
		{"and back", []string{"resume", "shop"}, "kubernetescluster", "shop", []string{"spec", "paused"}, false, "is changed to what its spec says"},
		{"only the upgrade", []string{"pause", "shop", "--upgrade"}, "kubernetescluster", "shop", []string{"spec", "upgrade", "paused"}, true, "kubectl viti resume --upgrade shop"},
		{"and back", []string{"resume", "--upgrade", "shop"}, "kubernetescluster", "shop", []string{"spec", "upgrade", "paused"}, false, "tries failed nodes again"},
		{"failed nodes are not tried again", []string{"resume", "--upgrade", "shop"}, "kubernetescluster", "shop", []string{"spec", "upgrade", "paused"}, false, "run kubectl viti pause --upgrade shop"},
		{"snapshots", []string{"pause", "eb/nightly"}, "etcdbackup", "nightly", []string{"spec", "suspend"}, true, "takes no snapshots"},
	} {
		if got := e.must(tc.args...); !strings.Contains(got, tc.says) {
			t.Errorf("%s: got %q, want %q", tc.because, got, tc.says)
		}
		if got := e.get(tc.kind, tc.name, tc.path...); got != tc.want {
			t.Errorf("%s: the field is %v, want %v", tc.because, got, tc.want)
		}
	}
	e.must("reconcile", "machine/shop-cp-0")
	if _, err := e.Patch(t.Context(), cluster.MustFindKind("kc"), "shop", []byte(`{"metadata":{"annotations":{"vitistack.io/paused":"true"}}}`), false); err != nil {
		t.Fatal(err)
	}
	if _, notes, _ := e.run("resume", "shop"); !strings.Contains(notes, "kubectl annotate kubernetescluster shop -n "+e.namespace+" vitistack.io/paused-") {
		t.Errorf("the cluster stays paused by the annotation: %s", notes)
	}
	first := e.get("machine", "shop-cp-0", "metadata", "annotations", "vitistack.io/reconcile")
	e.must("reconcile", "machine/shop-cp-0")
	if second := e.get("machine", "shop-cp-0", "metadata", "annotations", "vitistack.io/reconcile"); first == nil || first == second {
		t.Errorf("each request has a value of its own: %v and %v", first, second)
	}
	e.refuses([]refusal{
		{"a Machine has no such field", []string{"pause", "machine/shop-cp-0"}, "write kubernetescluster or etcdbackup"},
		{"a backup has no upgrade", []string{"resume", "eb/nightly", "--upgrade"}, "--upgrade is for a KubernetesCluster"},
		{"a name alone is ambiguous", []string{"protect", "shop"}, "write KIND/NAME"},
		{"there is no such object", []string{"protect", "machine/nope"}, "does not exist"},
		{"the user may not", []string{"protect", "machine/shop-cp-0", "--as", "nobody"}, "vitistack-edit"},
	})
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(stuck)
	if got := e.must("upgrade", "shop"); !strings.Contains(got, "runs Kubernetes 1.33.1 on Talos 1.13.9") || !strings.Contains(got, "kubectl viti upgrade shop --to 1.34.13") {
		t.Errorf("it lists what is possible: %s", got)
	}
	if got := e.must("upgrade", "shop", "--to", "1.34", "--dry-run"); !strings.Contains(got, "dry run") || e.get("kc", "shop", "spec", "topology", "version") != "1.33" {
		t.Errorf("a dry run changes nothing: %s", got)
	}
	e.must("upgrade", "shop", "--to", "1.34")
	workers, _ := e.get("kc", "shop", "spec", "topology", "workers").([]any)
	pool, _ := workers[0].(map[string]any)
	if version, control := e.get("kc", "shop", "spec", "topology", "version"), e.get("kc", "shop", "spec", "topology", "controlplane", "version"); version != "1.34" || control != "1.34" || pool["version"] != "1.34" {
		t.Errorf("the versions are %v, %v and %v, want 1.34", version, control, pool["version"])
	}
	if _, errs, code := e.run("upgrade", "shop", "--to", "1.36"); code == 0 || !strings.Contains(errs, "write 1.34 first") {
		t.Errorf("a minor version may not be left out: %s", errs)
	}
	if _, errs, code := e.run("upgrade", "shop", "--wait"); code == 0 || !strings.Contains(errs, "write --to VERSION") {
		t.Errorf("there is nothing to wait for: %s", errs)
	}
	e.create(`{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: legacy}, spec: {data: {}, topology: {version: "1.99", controlplane: {replicas: 1}}}}`)
	if got := e.must("upgrade", "legacy"); !strings.Contains(got, "does not run yet") || !strings.Contains(got, "kubectl viti upgrade legacy --to 1.31.") || !strings.Contains(got, "kubectl viti upgrade legacy --to 1.36.") {
		t.Errorf("it lists what a cluster can be created with: %s", got)
	}
	if got := e.must("upgrade", "legacy", "-n", e.namespace); !strings.Contains(got, " -n "+e.namespace+"\n") {
		t.Errorf("the commands are for the same namespace: %s", got)
	}
	if got := e.must("upgrade", "kc/legacy", "--to", "1.33"); !strings.Contains(got, "is created with Kubernetes 1.33.13") || e.get("kc", "legacy", "spec", "topology", "version") != "1.33" {
		t.Errorf("the version is written: %s", got)
	}
	u, err := e.Get(t.Context(), cluster.MustFindKind("kc"), "shop")
	if err != nil {
		t.Fatal(err)
	}
	e.setStatus(u, map[string]any{"observedGeneration": u.GetGeneration(), "version": "1.33.1", "talosVersion": "1.13.9", "conditions": []any{map[string]any{
		"type": "Ready", "status": "False", "reason": "UpgradeFailed", "message": "node shop-w-0: no answer", "lastTransitionTime": "2026-11-24T12:00:00Z"}}})
	out, errs, code := e.run("upgrade", "shop", "--to", "1.34", "--wait", "--timeout", "30s")
	if code == 0 || !strings.Contains(out, "node shop-w-0: no answer") || !strings.Contains(errs, "the requester has to act") {
		t.Errorf("an upgrade that has stopped ends with the remedy: %d, %s%s", code, out, errs)
	}
	if got := e.must("upgrade", "shop", "--to", "1.34.13"); !strings.Contains(got, "is upgraded") {
		t.Errorf("another patch release is written: %s", got)
	}
	if u, err = e.Get(t.Context(), cluster.MustFindKind("kc"), "shop"); err != nil {
		t.Fatal(err)
	}
	e.setStatus(u, map[string]any{"observedGeneration": u.GetGeneration(), "version": "1.34.13", "talosVersion": "1.13.9", "conditions": []any{
		map[string]any{"type": "Ready", "status": "True", "reason": "ClusterRunning", "message": "every node is Ready", "lastTransitionTime": "2026-11-24T12:00:00Z"},
		map[string]any{"type": "VersionsCurrent", "status": "True", "reason": "VersionsCurrent", "message": "x", "lastTransitionTime": "2026-11-24T12:00:00Z"},
	}})
	if got := e.must("upgrade", "shop", "--to", "1.34.13", "--wait", "--timeout", "30s"); !strings.Contains(got, "No change") || !strings.Contains(got, "every node is Ready") {
		t.Errorf("the upgrade has finished: %s", got)
	}
}

// class is a MachineClass.
const class = "{apiVersion: vitistack.io/v1alpha1, kind: MachineClass, metadata: {name: NAME}, spec: {resources: {cpu: {cores: 8}, memory: {size: 32Gi}}, disks: [{name: root, size: 100Gi}]}}"

func TestCreateCluster(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	written := e.must("create", "cluster", "shop", "--workers", "w=2:small", "--environment", "prod", "--dry-run")
	var shape, example map[string]any
	raw, err := os.ReadFile("../../../apis/examples/simple-kubernetescluster.yaml")
	if err != nil || yaml.Unmarshal(raw, &example) != nil || yaml.Unmarshal([]byte(written), &shape) != nil {
		t.Fatalf("read the example: %v", err)
	}
	for key := range shape {
		if example[key] == nil {
			t.Errorf("the example has no %s", key)
		}
	}
	e.must("create", "cluster", "shop", "--workers", "w=2:small", "--environment", "prod", "--apply")
	if got := e.get("kc", "shop", "spec", "data", "environment"); got != "prod" {
		t.Errorf("the environment is %v", got)
	}
	e.create(strings.Replace(class, "NAME", e.namespace+"-xl", 1))
	if written := e.must("create", "cluster", "xl", "--workers", "w=1:"+e.namespace+"-xl", "--dry-run"); !strings.Contains(written, "template: "+e.namespace+"-xl") {
		t.Errorf("the pool has no MachineClass: %s", written)
	}
	if got := e.must("create", "cluster", "other", "--dry-run", "-o", "name"); got != "kubernetescluster/other\n" {
		t.Errorf("the name is %q", got)
	}
	e.refuses([]refusal{
		{"it is the only kind", []string{"create", "machine", "x"}, "write kubectl viti create cluster NAME"},
		{"a size says nothing about readiness", []string{"why", "machineclass/" + e.namespace + "-xl"}, "a MachineClass has no condition"},
		{"it exists", []string{"create", "cluster", "shop", "--apply"}, "choose another name"},
		{"there is no such namespace", []string{"create", "cluster", "shop", "--apply", "-n", "nowhere"}, "kubectl create namespace nowhere"},
		{"the API server knows the rule", []string{"create", "cluster", "other", "--workers", "cp=1", "--dry-run"}, "a worker pool cannot be named cp"},
		{"there is no such size", []string{"create", "cluster", "other", "--workers", "w=1:huge", "--dry-run"}, e.namespace + "-xl"},
		{"all mistakes at once", []string{"create", "cluster", "other", "--control-planes", "2", "--workers", "w"}, "write NAME=REPLICAS"},
		{"the two exclude each other", []string{"create", "cluster", "other", "--apply", "--dry-run"}, "[apply dry-run]"},
	})
}

// TestCreateClusterAsks answers the questions of create cluster.
func TestCreateClusterAsks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	ask := func(answers string, args ...string) (out, errs string, code int) {
		var stdout, stderr bytes.Buffer
		args = append([]string{"--kubeconfig", e.kubeconfig, "create", "cluster", "shop", "--ask"}, args...)
		code = command.Run(t.Context(), "dev", args, command.Streams{In: strings.NewReader(answers), Out: &stdout, Err: &stderr})
		return stdout.String(), stderr.String(), code
	}
	for name, tc := range map[string]struct {
		because, answers string
		args             []string
		like             []string
		says             string
	}{
		"Defaults": {"an empty answer is the default", "\n\n\n\n\n\n\n", nil, nil, "Kubernetes version [1.36]: "},
		"Answers": {"each answer is a flag", "1.34\n1\nsmall\nw=1 gpu=2:large\nnet\nprod\nweb\n", nil,
			[]string{"--version", "1.34", "--control-planes", "1", "--control-plane-template", "small", "--workers", "w=1", "--workers", "gpu=2:large", "--network", "net", "--environment", "prod", "--project", "web"}, ""},
		"Flags":   {"a flag is not asked for", "\n\n\n\n\n\n", []string{"--control-planes", "5"}, []string{"--control-planes", "5"}, ""},
		"Again":   {"a mistake is asked for again", "1.99\n1.34\n2\nmany\n1\n\nw\nw=1\n\n\n\n", nil, []string{"--version", "1.34", "--control-planes", "1", "--workers", "w=1"}, "write 1, 3, 5 or 7"},
		"Default": {"the default is good after a mistake", "\n\n\nw\n\n\n\n\n", nil, nil, "write NAME=REPLICAS"},
	} {
		out, errs, code := ask(tc.answers, tc.args...)
		want := e.must(append([]string{"create", "cluster", "shop"}, tc.like...)...)
		if code != 0 || out != want || !strings.Contains(errs, tc.says) {
			t.Errorf("%s: %s: got %d, %s%s, want\n%s", name, tc.because, code, out, errs, want)
		}
	}
	if out, errs, code := ask("1.34\n1\nhuge\nw=1\nnet\nprod\nweb\n", "--kubeconfig", filepath.Join(t.TempDir(), "none")); code != 0 || !strings.Contains(out, "huge") || strings.Count(errs, "MachineClasses cannot be read") != 1 {
		t.Errorf("without a cluster the MachineClasses are unknown, which is said once: %d, %s, %s", code, out, errs)
	}
	if out, errs, code := ask("1.34\n"); code == 0 || out != "" || !strings.Contains(errs, "write flags instead of --ask") {
		t.Errorf("the input ends too early: %d, %q, %s", code, out, errs)
	}
	if _, errs, code := ask("\n", "--control-planes", "2"); code == 0 || strings.Contains(errs, "Kubernetes version") {
		t.Errorf("a mistake in a flag is reported before the questions: %d, %s", code, errs)
	}
}

// TestSupportBundle plants secrets in every place that a bundle reads, and searches the bundle for
// them, as they are and in base64.
func TestSupportBundle(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(stuck)
	planted := map[string]string{
		"value": "pl4nted-in-a-secret", "userdata": "pl4nted-in-user-data", "message": "pl4nted-in-a-message", "annotation": "pl4nted-in-an-annotation", "event": "pl4nted-in-an-event",
		"env": "pl4nted-in-an-env", "kubeconfig": "pl4nted1in2a3kubeconfig4", "configmap": "pl4nted-in-a-configmap", "url": "pl4nted-in-a-url",
	}
	e.create(secret("pve", "tokenSecret", planted["value"]) + "\n---\n" + secret("shop-kubeconfig", "kubeconfig", "users:\n- user: {token: "+planted["kubeconfig"]+"}\n") + `
---
{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: web, annotations: {kubectl.kubernetes.io/last-applied-configuration: "` + planted["annotation"] + `"}}, spec: {template: small, cloudInit: {userData: "#cloud-config\npassword: ` + planted["userdata"] + `"}},
  status: {observedGeneration: 1, phase: Failed, conditions: [{type: Ready, status: "False", reason: ProviderUnavailable, message: "401 Unauthorized: token=` + planted["message"] + `, with ` + planted["value"] + ` at https://viti:` + planted["url"] + `@10.0.0.1:8006", lastTransitionTime: "2026-11-24T12:00:00Z"}]}}
---
{apiVersion: v1, kind: Event, metadata: {name: web.1}, involvedObject: {kind: Machine, name: web, namespace: NAMESPACE}, reason: Failed, message: "Authorization: Bearer ` + planted["event"] + ` and ` + planted["kubeconfig"] + `"}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: orphans}, data: {kea: '{"message": "password=` + planted["configmap"] + `"}'}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gateway}, spec: {containers: [{name: gateway, image: x, env: [{name: DATABASE_URL, value: "` + planted["env"] + `"}]}]}}`)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	e.must("support-bundle", "--file", file, "--stack-namespace", e.namespace)
	files := unpack(t, file)
	all := ""
	for _, content := range files {
		all += content
	}
	for place, text := range planted {
		for _, form := range []string{text, base64.StdEncoding.EncodeToString([]byte(text))} {
			if strings.Contains(all, form) {
				t.Errorf("the secret planted as %s is in the bundle, as %s", place, form)
			}
		}
	}
	for name, want := range map[string]string{
		"README.txt": "Objects of: " + e.namespace, "status.txt": "ProviderUnavailable", "secrets.yaml": "tokenSecret: '(removed: 19 bytes)'",
		"objects/" + e.namespace + "/machine.yaml": "10.0.0.1:8006", "objects/" + e.namespace + "/event.yaml": "reason: Failed", "installation/" + e.namespace + "/pod.yaml": "DATABASE_URL",
		"installation/" + e.namespace + "/orphans.yaml": "kea",
	} {
		if !strings.Contains(files["viti-support/"+name], want) {
			t.Errorf("%s has no %q:\n%s", name, want, files["viti-support/"+name])
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may not read the bundle: %v", err)
	}
	if _, errs, code := e.run("support-bundle", "--file", file); code == 0 || !strings.Contains(errs, "write another name into --file") {
		t.Errorf("an existing file is kept: %d, %s", code, errs)
	}
	out, errs, code := e.run("support-bundle", "--file", file+"-2", "--as", "nobody")
	if code != 0 || !strings.Contains(errs, "left out: machines: you may not list them") {
		t.Errorf("what the user may not read is noted: %d, %s%s", code, out, errs)
	}
}

func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	archive := tar.NewReader(compressed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(stuck)
	e.create(strings.Replace(class, "NAME", e.namespace+"-xl", 1))
	for name, tc := range map[string]struct {
		because string
		args    []string
		want    []string
	}{
		"Kinds":    {"first the kind", []string{"__complete", "why", ""}, []string{"machine/", "kubernetescluster/"}},
		"Names":    {"then the name", []string{"__complete", "why", "machine/"}, []string{"machine/shop-cp-0"}},
		"Short":    {"by a short name too", []string{"__complete", "tree", "kc/"}, []string{"kc/shop"}},
		"Clusters": {"a cluster", []string{"__complete", "kubeconfig", ""}, []string{"shop"}},
		"Versions": {"what is possible", []string{"__complete", "upgrade", "shop", "--to", ""}, []string{"1.33.13", "1.34.13"}},
		"Sizes":    {"the sizes that exist", []string{"__complete", "create", "cluster", "x", "--control-plane-template", ""}, []string{"small", "large", e.namespace + "-xl"}},
		"Pools":    {"the sizes of pools", []string{"__complete", "create", "cluster", "x", "--workers", ""}, []string{"workers=3:small", "workers=3:" + e.namespace + "-xl"}},
		"Output":   {"the formats", []string{"__complete", "status", "-o", ""}, []string{"json", "yaml", "name"}},
		"Contexts": {"the contexts of the kubeconfig", []string{"__complete", "status", "--context", ""}, []string{"x"}},
		"Target":   {"the contexts of the other kubeconfig", []string{"__complete", "move", "--to-kubeconfig", e.kubeconfig, "--to-context", ""}, []string{"x"}},
		"Commands": {"the commands", []string{"__complete", "sup"}, []string{"support-bundle"}},
	} {
		// cobra takes what follows __complete as the line to complete.
		args := append(append([]string{}, tc.args[:2]...), append([]string{"--kubeconfig", e.kubeconfig}, tc.args[2:]...)...)
		if name == "Commands" {
			args = tc.args
		}
		var out bytes.Buffer
		command.Run(t.Context(), "dev", args, command.Streams{Out: &out, Err: io.Discard})
		for _, want := range tc.want {
			if !strings.Contains("\n"+out.String(), "\n"+want) {
				t.Errorf("%s: %s: %q is missing in\n%s", name, tc.because, want, out.String())
			}
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "kubectl"} {
		if got := e.must("completion", shell); !strings.Contains(got, "kubectl-viti") {
			t.Errorf("the script for %s is %q", shell, got)
		}
	}
	if _, errs, code := e.run("completion", "csh"); code == 0 || !strings.Contains(errs, "write bash, zsh, fish or kubectl") {
		t.Errorf("there is none for csh: %s", errs)
	}
}

package install

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/engine"
)

// pages are the pages with commands, in the order in which a reader can follow them. The last one
// uninstalls.
var pages = []string{"install", "observe", "debug", "kubectl-viti", "machine-classes", "cluster-templates", "scale", "brokers", "security", "backends", "backup", "gitops", "migrate", "upgrade"}

// unfinished are commands without complete arguments, and commands for another release than the
// installed one, with the reason.
var unfinished = map[string]string{
	`kubectl get secret "$name" -n "$namespace" -o yaml | age -r "$RECIPIENT" > "credentials-$namespace-$name.yaml.age"`: "a loop sets the variables",
	"helm install vitistack … --take-ownership --force-conflicts":                                                        "it is installed already",
	`kubectl scale deployment --all --replicas=0 -n "$namespace"`:                                                        "for other operators",
	"kubectl apply --server-side --subresource=status":                                                                   "the file was saved elsewhere",
	"kubectl rollout restart deployment,daemonset,statefulset -n NS":                                                     "for the cluster whose authorities are rotated",
	"kubectl wait --for=jsonpath='{.status.phase}'=Succeeded pod/gateway-check -n vitistack-system --timeout=1m":         "yq makes the Pod",
	"kubectl logs gateway-check -n vitistack-system":                                                                     "the same",
	"kubectl delete pod gateway-check -n vitistack-system":                                                               "the same",
	"kubectl create role … --resource=machines.vitistack.io":                                                             "the reader selects the verbs",
}

// waiting has the prefixes of commands that wait for pods or for another management cluster, and their
// output where neither exists.
var waiting = map[string]string{
	"helm test vitistack":                                 "Pod in progress",
	"kubectl wait --for=condition=Ready":                  "timed out waiting for the condition",
	"kubectl wait --for=condition=AuthoritiesRotated":     "timed out waiting for the condition",
	"kubectl viti move --to-context other":                `context "other" does not exist`,
	"kubectl viti kubeconfig":                             "has no kubeconfig yet",
	"kubectl viti talosconfig":                            "has no talosconfig yet",
	"kubectl viti upgrade":                                "does not run yet",
	"kubectl exec":                                        "timed out waiting for the condition",
	"kubectl logs -n vitistack-system deployment/gateway": "timed out waiting for the condition",
	"kubectl wait --for=jsonpath":                         "timed out waiting for the condition",
}

var (
	block  = regexp.MustCompile("(?s)```sh\n(.*?)```")
	inline = regexp.MustCompile("`((?:kubectl|helm) [^`]+)`")
)

// commandsOf returns the commands of a page, in their order.
func commandsOf(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart(), "..", "..", "docs", page+".md"))
	if err != nil {
		t.Fatal(err)
	}
	type found struct {
		at   int
		text string
	}
	var all []found
	for _, match := range block.FindAllSubmatchIndex(text, -1) {
		for line := range strings.Lines(string(text[match[2]:match[3]])) {
			if command, _, _ := strings.Cut(line, " #"); strings.TrimSpace(command) != "" {
				all = append(all, found{match[0], strings.TrimSpace(command)})
			}
		}
	}
	for _, match := range inline.FindAllSubmatchIndex(text, -1) {
		all = append(all, found{match[0], strings.Join(strings.Fields(string(text[match[2]:match[3]])), " ")})
	}
	slices.SortStableFunc(all, func(a, b found) int { return a.at - b.at })
	var commands []string
	for _, f := range all {
		commands = append(commands, f.text)
	}
	return commands
}

// followPages runs every command of the pages in a cluster that has only the prerequisites, with one
// object of each kind in the pages.
func followPages(t *testing.T, c *cluster, h *helm) {
	desk := newDesk(t, h)
	ran := 0
	for _, page := range pages {
		for _, command := range commandsOf(t, page) {
			ours := strings.HasPrefix(command, "kubectl ") || strings.HasPrefix(command, "helm ")
			if !ours || unfinished[command] != "" || len(strings.Fields(command)) == 2 {
				continue
			}
			ran++
			if strings.HasPrefix(command, "helm upgrade") || strings.HasPrefix(command, "helm rollback") {
				bind(t, c)
			}
			if err := desk.run(t.Context(), command); err != nil {
				t.Errorf("%s.md: %s: %v", page, command, err)
			}
			if strings.HasPrefix(command, "helm install vitistack") {
				desk.prepare(t, c)
			}
		}
	}
	if ran < 40 {
		t.Errorf("only %d commands were found", ran)
	}
	if err := desk.run(t.Context(), "kubectl delete pod --all --force -n vitistack-system"); err != nil {
		t.Error(err)
	}
}

// desk is the environment of a reader who follows the pages: a folder with the repository's files,
// kubectl and Helm.
type desk struct{ folder, path, kubeconfig string }

func newDesk(t *testing.T, h *helm) *desk {
	t.Helper()
	local, err := apiserver.Binary()
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{folder: t.TempDir(), kubeconfig: h.kubeconfig}
	d.path = filepath.Join(d.folder, "bin")
	tools := map[string]string{"kubectl": "exec " + local + " kubectl \"$@\"\n", "helm": "exec " + h.binary + " \"$@\"\n"}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, script := range tools {
		if err := os.WriteFile(filepath.Join(d.path, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(d.path, "kubectl-viti"), "./tools/kubectl-viti")
	build.Dir = engine.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build kubectl-viti: %v\n%s", err, out)
	}
	if err := os.Symlink(filepath.Join(engine.Root(), "apis"), filepath.Join(d.folder, "apis")); err != nil {
		t.Fatal(err)
	}
	return d
}

// names replaces the placeholders of a page: the chart in a registry by the one in the repository, and
// the names of objects.
var names = strings.NewReplacer(
	"https://raw.githubusercontent.com/vitistack/stack/main/", "",
	"oci://ghcr.io/vitistack/helm/vitistack", chart(), "vitistack … --reset-then-reuse-values", "vitistack "+chart()+" --reset-then-reuse-values",
	"helm template vitistack …", "helm template vitistack "+chart(), " NAME", " web-1", "/NAME", "/web-1", "=NAME", "=web-1", "-n NS", "-n default",
	" --timeout=1h", "", "kubectl wait ", "kubectl wait --timeout=1s ", "kubectl exec ", "kubectl exec --pod-running-timeout=1s ",
	"deployment/gateway -f", "deployment/gateway --pod-running-timeout=1s", "helm test vitistack", "helm test vitistack --timeout 1s",
)

// run runs a command of a page in a shell, up to the first pipe. What follows the pipe belongs to
// other tools.
func (d *desk) run(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	line, _, _ := strings.Cut(names.Replace(command), " | ")
	shell := exec.CommandContext(ctx, "sh", "-c", line)
	shell.Dir = d.folder
	shell.Env = append(os.Environ(), "PATH="+d.path+":"+os.Getenv("PATH"), "KUBECONFIG="+d.kubeconfig,
		"HELM_NAMESPACE="+namespace, "HELM_CACHE_HOME="+d.folder, "HELM_CONFIG_HOME="+d.folder, "HELM_DATA_HOME="+d.folder)
	out, err := shell.CombinedOutput()
	if err == nil {
		return nil
	}
	for begin, says := range waiting {
		if strings.HasPrefix(command, begin) && strings.Contains(string(out), says) {
			return nil
		}
	}
	return errors.New(err.Error() + "\n" + string(out))
}

// things are the objects in the pages: one Machine with everything that belongs to it.
const things = `apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web-1, namespace: default, finalizers: [machine.vitistack.io/cleanup]}
spec: {template: small}
---
apiVersion: vitistack.io/v1alpha1
kind: NetworkConfiguration
metadata: {name: web-1, namespace: default}
spec: {networkInterfaces: [{name: eth0}]}
---
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: simple-cluster, namespace: default}
spec: {data: {}, topology: {version: "1.33", controlplane: {replicas: 1}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web-1, namespace: default}
spec: {domain: {devices: {}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: vitistack-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: knative-eventing}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config-features, namespace: knative-eventing}
`

func (d *desk) prepare(t *testing.T, c *cluster) {
	t.Helper()
	if err := c.discover(); err != nil {
		t.Fatal(err)
	}
	objects, err := decode([]byte(things))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := c.apply(t.Context(), object, false); err != nil {
			t.Fatalf("make %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// TestValuesOfPages checks that the chart has every value that a page names.
func TestValuesOfPages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart(), "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	schema := &unstructured.Unstructured{}
	if err := schema.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"Schema","schema":` + string(text) + `}`)); err != nil {
		t.Fatal(err)
	}
	root, _, _ := unstructured.NestedMap(schema.Object, "schema")
	properties, _, _ := unstructured.NestedMap(root, "properties")
	value := regexp.MustCompile("`([a-z][A-Za-z]*(?:\\.[A-Za-z_*]+)+)(?:: [^`]*)?`")
	looked := 0
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(chart(), "..", "..", "docs", page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range value.FindAllSubmatch(text, -1) {
			path := strings.Split(strings.TrimSuffix(string(match[1]), ".*"), ".")
			if properties[path[0]] == nil || slices.Contains([]string{"tls.crt", "tls.key", "secrets.bundle"}, string(match[1])) {
				continue // a key of a Secret
			}
			looked++
			if !has(root, path) {
				t.Errorf("%s.md names the value %s, which the chart lacks", page, match[1])
			}
		}
	}
	if looked < 20 {
		t.Errorf("only %d values were found", looked)
	}
}

// has reports whether a JSON schema has a value at a path. NAME stands for any property.
func has(schema map[string]any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, next := range properties {
		if next, ok := next.(map[string]any); ok && (name == path[0] || path[0] == "NAME") && has(next, path[1:]) {
			return true
		}
	}
	switch more := schema["additionalProperties"].(type) {
	case map[string]any:
		return has(more, path[1:])
	case bool:
		return more
	default:
		return properties == nil
	}
}

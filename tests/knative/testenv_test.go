package knative

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// env is a local engine without its own eventing.
type env struct {
	*engine.Engine
	t       *testing.T
	network *network
	client  kubernetes.Interface
	urls    map[string]string // of functions and Services, by namespace/name
}

// egress makes the API server connect to webhooks through the proxy.
const egress = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport: {uds: {udsName: %s}}
`

// newRig starts the engine with the manifests that do not belong to Knative Eventing, the network and
// the kubelet.
func newRig(t *testing.T, bin string) *env {
	t.Helper()
	dir := t.TempDir()
	r := &env{t: t, network: &network{elsewhere: map[string]string{}}}
	outside, proxy := filepath.Join(dir, "proxy"), ""
	for _, where := range [][2]string{{"unix", outside}, {"tcp", "127.0.0.1:0"}} {
		listener, err := net.Listen(where[0], where[1])
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: r.network, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		proxy = "http://" + listener.Addr().String()
	}
	selector := filepath.Join(dir, "egress.yaml")
	if err := os.WriteFile(selector, fmt.Appendf(nil, egress, outside), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Engine = engine.Start(t, "--root", withoutEventing(t), "--apiserver-flag", "--egress-selector-config-file="+selector,
		"--config", "HTTP_PROXY="+proxy)
	config, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	k := &kubelet{
		client: r.client, dir: dir, bin: bin, apiServer: strings.TrimPrefix(config.Host, "https://"), authority: config.CAFile,
		outside: outside, logf: t.Logf, pods: map[string]*pod{}, ended: map[string]time.Time{},
	}
	r.network.client, r.network.enter = r.client, k.enter
	r.network.elsewhere["default/kubernetes"] = k.apiServer
	r.resolveEngine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { k.run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if t.Failed() {
			k.printLogs()
		}
	})
	return r
}

// resolveEngine makes the names of functions and of the gateway resolve to the engine.
func (r *env) resolveEngine() {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.Dir, "engine.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	var summary struct{ Functions, Services map[string]string }
	if err := json.Unmarshal(text, &summary); err != nil {
		r.t.Fatal(err)
	}
	urls := summary.Services
	for name, url := range summary.Functions {
		urls[namespace+"/"+name] = url
	}
	r.urls = urls
	if err := r.network.know(urls); err != nil {
		r.t.Fatal(err)
	}
}

// withoutEventing returns a folder like the repository, with the manifests that the engine handles.
func withoutEventing(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Symlink(filepath.Join(engine.Root(), "apis"), filepath.Join(root, "apis")); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(engine.Root(), "knative", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("find the manifests: %d files, %v", len(paths), err)
	}
	if err := os.Mkdir(filepath.Join(root, "knative"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			if !strings.Contains(doc, "apiVersion: eventing.knative.dev/v1\nkind: ") && !strings.Contains(doc, "apiVersion: sources.knative.dev/v1\nkind: ") {
				kept = append(kept, doc)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "knative", filepath.Base(path)), []byte(strings.Join(kept, "\n---\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// module returns the folder of a module of Knative, in the version of the local engine's eventing.
func module(t *testing.T, name string) string {
	t.Helper()
	inEngine := func(args ...string) []byte {
		t.Helper()
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = filepath.Join(engine.Root(), "knative", "local")
		out, err := command.Output()
		if err != nil {
			t.Fatalf("go %s: %v", strings.Join(args, " "), err)
		}
		return bytes.TrimSpace(out)
	}
	version := inEngine("list", "-m", "-f", "{{.Version}}", "knative.dev/eventing")
	var answer struct{ Dir string }
	if err := json.Unmarshal(inEngine("mod", "download", "-json", "knative.dev/"+name+"@"+string(version)), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Dir
}

// kubectl runs kubectl as the administrator.
func (r *env) kubectl(stdin string, args ...string) string {
	r.t.Helper()
	command := exec.CommandContext(r.t.Context(), engine.Local(r.t), append([]string{"kubectl", "--kubeconfig", r.Kubeconfig()}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		r.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, &problems)
	}
	return out.String()
}

// apply applies files and folders below another one.
func (r *env) apply(below string, paths ...string) {
	r.t.Helper()
	args := []string{"apply", "--server-side", "--force-conflicts"}
	for _, path := range paths {
		args = append(args, "--filename", filepath.Join(below, path))
	}
	r.kubectl("", args...)
}

// images are the images of components that are not installed here, which the controller requires.
const images = `apiVersion: v1
kind: ConfigMap
metadata: {name: eventing-transformations-images, namespace: knative-eventing}
data: {transform-jsonata: none}
`

// installKnative applies the released manifests of Knative Eventing, and waits until its webhooks
// answer.
func (r *env) installKnative() {
	r.t.Helper()
	const core, channel, broker = "config/core/", "config/channels/in-memory-channel/", "config/brokers/mt-channel-broker/"
	eventing := module(r.t, "eventing")
	r.apply(eventing, core+"100-namespace.yaml", core+"resources", channel+"resources")
	r.apply(eventing, core, core+"roles", core+"configmaps", channel, channel+"roles", channel+"configmaps", broker+"roles",
		"third_party/eventing-integrations-latest/eventing-integrations-images.yaml")
	// Serving's part of the aggregated roles.
	r.apply(module(r.t, "serving"), "config/core/200-roles/addressable-resolvers-clusterrole.yaml", "config/core/200-roles/podspecable-bindings-clusterrole.yaml")
	r.kubectl(images, "apply", "--server-side", "--filename", "-")
	r.apply(eventing, core+"deployments/controller.yaml", core+"deployments/webhook.yaml", core+"deployments/pingsource-mt-adapter.yaml",
		channel+"deployments", core+"webhooks", channel+"webhooks", broker+"deployments/broker-filter.yaml", broker+"deployments/broker-ingress.yaml", broker+"deployments/controller.yaml")
	for _, name := range []string{
		"eventing-controller", "eventing-webhook", "imc-controller", "imc-dispatcher", "mt-broker-controller", "mt-broker-filter", "mt-broker-ingress",
	} {
		r.awaitAvailable(name)
	}
}

func (r *env) awaitAvailable(deployment string) {
	r.t.Helper()
	feed.Until(r.t, "Deployment "+deployment+" is available", func() (bool, string) {
		object := r.Get(deployments, "knative-eventing", deployment)
		return conditionOf(object, "Available") == "True", fmt.Sprint(object.Object["status"])
	})
	r.t.Logf("%s is available", deployment)
}

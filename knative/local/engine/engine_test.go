package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/knative/local/process"
)

// TestEngine runs the whole engine once. Its parts depend on each other.
func TestEngine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "widget.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: test.vitistack.io/v1\nkind: Widget\nmetadata: {name: applied}\nspec: {color: blue}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, out := testOptions(t, "--audit", "--idle=1s", "--config=COLOR=from the ConfigMap", `--process=extra=sh -c 'sleep 5; printf "extra\thttp://there\n" >$NOTES; : >$READY; exec sleep 1000'`, "--await=extra", "--apply="+file)
	r := startRig(t, o, out)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"AppliedFileIsSeen", appliedFileIsSeen},
		{"NotesAreTold", notesAreTold},
		{"PingAtStart", pingAtStart},
		{"FunctionActsAsItsServiceAccount", functionActsAsItsServiceAccount},
		{"ReplyReachesTheGateway", replyReachesTheGateway},
		{"TransitionsAreTold", transitionsAreTold},
		{"KnativeObjectsAreReady", knativeObjectsAreReady},
		{"IdleFunctionStops", idleFunctionStops},
		{"IdleSystemWritesNothing", idleSystemWritesNothing},
		{"TriggerAtRunTime", triggerAtRunTime},
		{"OwnedObjectsAreCollected", ownedObjectsAreCollected},
		{"KilledComponentsComeBack", killedComponentsComeBack},
		{"Admin", adminEndpoint},
		{"Kubectl", runKubectlScript},
		{"CleanStop", cleanStop},
		{"SecondStartChangesNothing", secondStartChangesNothing},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			part.run(t, &env{t: t, options: r.options, out: r.out, summary: r.summary, cluster: r.cluster, stop: r.stop})
		}) {
			return
		}
	}
}

func notesAreTold(t *testing.T, r *env) {
	if !strings.Contains(r.out.String(), "\n  extra        http://there\n") {
		t.Errorf("the start-up block lacks the notes of a process:\n%s", r.out)
	}
}

func (r *env) create(name string) *unstructured.Unstructured {
	r.t.Helper()
	created, err := r.cluster.dynamic.Resource(widgets).Namespace("default").Create(context.Background(), widget(name), metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return created
}

func (r *env) awaitRecord(program, kind, name string) line {
	r.t.Helper()
	var found line
	r.eventually(fmt.Sprintf("%s gets %s of %s", program, kind, name), func() bool {
		var ok bool
		found, ok = r.recorded(program, kind, name)
		return ok
	})
	return found
}

// appliedFileIsSeen checks that the creation by --apply is an event, because the source watches before.
func appliedFileIsSeen(_ *testing.T, r *env) {
	r.awaitRecord("paint", "dev.knative.apiserver.ref.add", "applied")
}

func pingAtStart(t *testing.T, r *env) {
	r.eventually("the first ping", func() bool {
		return slices.ContainsFunc(r.records("paint"), func(l line) bool { return l.Type == "dev.knative.sources.ping" && l.Data == `{"tick":true}` })
	})
	pings := 0
	for _, l := range r.records("paint") {
		if l.Type == "dev.knative.sources.ping" {
			pings++
		}
	}
	if pings != 1 {
		t.Errorf("%d pings, want the one at the start", pings)
	}
}

func functionActsAsItsServiceAccount(t *testing.T, r *env) {
	r.create("one")
	got := r.awaitRecord("paint", "dev.knative.apiserver.ref.add", "one")
	want := line{
		Type: "dev.knative.apiserver.ref.add", Subject: "/apis/test.vitistack.io/v1/namespaces/default/widgets/one", Path: "/",
		User: "system:serviceaccount:vitistack-system:paint", Data: got.Data,
		ListSecrets: `secrets is forbidden: User "system:serviceaccount:vitistack-system:paint" cannot list resource "secrets" in API group "" at the cluster scope`,
		Env: map[string]string{
			"K_SERVICE": "paint", "SERVER_HOST": "127.0.0.1", "K_SINK": r.summary.Ingress, "COLOR": "from the ConfigMap", "PAINT": "from the Secret",
			"RECORD": filepath.Join(r.options.State, "volumes", "paint", "data", "record.jsonl"),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the record of the function (-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(r.options.State, "kubeconfigs", "vitistack-system_paint"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig of the function: %v %v, want mode 600", info, err)
	}
}

func replyReachesTheGateway(t *testing.T, r *env) {
	got := r.awaitRecord("gateway", "test.painted", "one")
	if diff := cmp.Diff([]string{"/events", "system:serviceaccount:vitistack-system:gateway"}, []string{got.Path, got.User}); diff != "" {
		t.Errorf("path and user of the delivery (-want +got):\n%s", diff)
	}
}

func transitionsAreTold(_ *testing.T, r *env) {
	r.eventually("the new phase is printed", func() bool {
		return strings.Contains(r.out.String(), "Widget default/one  created") && strings.Contains(r.out.String(), "Widget default/one  Painted")
	})
	if err := r.cluster.dynamic.Resource(widgets).Namespace("default").Delete(context.Background(), "one", metav1.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.eventually("the end is printed", func() bool { return strings.Contains(r.out.String(), "Widget default/one  Painted → gone") })
}

func knativeObjectsAreReady(t *testing.T, r *env) {
	cases := map[string]struct {
		gvr  schema.GroupVersionResource
		name string
		path []string
		want string
	}{
		"Broker":          {brokers, "vitistack", []string{"address", "url"}, r.summary.Ingress},
		"Trigger":         {triggers, "paint", []string{"subscriberUri"}, r.summary.Functions["paint"]},
		"GatewayTrigger":  {triggers, "gateway", []string{"subscriberUri"}, fmt.Sprintf("http://127.0.0.1:%d/events", r.placed("gateway-9992"))},
		"Service":         {services, "paint", []string{"url"}, r.summary.Functions["paint"]},
		"ApiServerSource": {sources, "widgets", []string{"sinkUri"}, r.summary.Ingress},
		"PingSource":      {pings, "tick", []string{"sinkUri"}, r.summary.Ingress},
		"SinkBinding":     {sinkBindings, "paint", []string{"sinkUri"}, r.summary.Ingress},
	}
	for name, tc := range cases {
		object, err := r.cluster.dynamic.Resource(tc.gvr).Namespace("vitistack-system").Get(t.Context(), tc.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		value, _, _ := unstructured.NestedString(object.Object, append([]string{"status"}, tc.path...)...)
		if diff := cmp.Diff([]string{tc.want, "True"}, []string{value, readyCondition(object)}); diff != "" {
			t.Errorf("%s: address and Ready (-want +got):\n%s", name, diff)
		}
	}
}

// placed returns the local port of a name.
func (r *env) placed(name string) int {
	r.t.Helper()
	var all map[string]int
	text, err := os.ReadFile(filepath.Join(r.options.State, "ports.json"))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return all[name]
}

func readyCondition(object *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == "Ready" {
			return text(c["status"])
		}
	}
	return ""
}

func triggerAtRunTime(t *testing.T, r *env) {
	got := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { got <- request.Header.Get("Ce-Subject") }))
	t.Cleanup(server.Close)
	client := r.cluster.dynamic.Resource(triggers).Namespace("vitistack-system")
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": map[string]any{"name": "later"},
		"spec": map[string]any{
			"broker": "vitistack", "subscriber": map[string]any{"uri": server.URL},
			"filters": []any{map[string]any{"cesql": "type = 'dev.knative.apiserver.ref.add' AND name = 'three'"}},
		},
	}}
	if _, err := client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := func(want string) func() bool {
		return func() bool {
			object, err := client.Get(t.Context(), "later", metav1.GetOptions{})
			return err == nil && readyCondition(object) == want
		}
	}
	r.eventually("the Trigger is ready", status("True"))
	r.create("three")
	select {
	case subject := <-got:
		if !strings.HasSuffix(subject, "/three") {
			t.Errorf("the subscriber got %s", subject)
		}
	case <-time.After(deadline):
		t.Fatal("the subscriber got no event")
	}
	patch := []byte(`{"spec":{"filters":[{"cesql":"type = "}]}}`)
	if _, err := client.Patch(t.Context(), "later", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("an invalid Trigger is refused", status("False"))
	if err := client.Delete(t.Context(), "later", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("the Trigger is removed from the broker", func() bool {
		for _, trigger := range r.report().Triggers {
			if trigger.Name == "vitistack-system/later" {
				return false
			}
		}
		return true
	})
}

// ownedObjectsAreCollected needs the garbage collector and the namespace controller.
func ownedObjectsAreCollected(t *testing.T, r *env) {
	owner := r.create("owner")
	owned := widget("owned")
	owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "test.vitistack.io/v1", Kind: "Widget", Name: owner.GetName(), UID: owner.GetUID()}})
	client := r.cluster.dynamic.Resource(widgets).Namespace("default")
	if _, err := client.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("the owned widget is deleted", func() bool {
		_, err := client.Get(t.Context(), "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	namespaces := r.cluster.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "passing"}}}
	if _, err := namespaces.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Delete(t.Context(), "passing", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("the namespace is deleted", func() bool {
		_, err := namespaces.Get(t.Context(), "passing", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func adminEndpoint(t *testing.T, r *env) {
	r.post("/kill/missing", http.StatusNotFound)
	r.post("/kill/etcd?signal=nonsense", http.StatusBadRequest)
	r.post("/kill/etcd?signal=CONT", http.StatusNoContent)
	r.post("/restart-free", http.StatusNoContent)
	r.eventually("every function is stopped", func() bool { return r.process("paint").State == process.StateStopped })
	r.post("/kill/paint", http.StatusConflict)
	report := r.report()
	var names []string
	for _, status := range report.Processes {
		names = append(names, status.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"apiserversource", "etcd", "extra", "gateway", "kube-apiserver", "kube-controllers", "paint"}, names); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	if report.Received == 0 || len(report.Triggers) != 2 || report.Triggers[1].Delivered == 0 {
		t.Errorf("counters: %+v", report)
	}
}

func runKubectlScript(t *testing.T, r *env) {
	out, err := command(t, filepath.Join(r.options.State, "kubectl"), "get", "ksvc,trigger", "-n", "vitistack-system")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"service.serving.knative.dev/paint", "trigger.eventing.knative.dev/gateway", "True", r.summary.Functions["paint"]} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl get does not show %q:\n%s", want, out)
		}
	}
	version, err := command(t, filepath.Join(r.options.State, "kubectl"), "version")
	if err != nil || strings.Contains(version, "v0.0.0") || !strings.Contains(version, "Server Version: v1.") {
		t.Errorf("kubectl version: %v\n%s", err, version)
	}
	own := filepath.Join(r.options.State, "kubeconfig")
	for _, tc := range []struct {
		why, kubeconfig string
		arguments       []string
		says            bool
	}{
		{"the user may believe that it uses another cluster", "/home/kari/prod", []string{"get", "namespaces"}, true},
		{"KUBECONFIG is what it uses", own, []string{"get", "namespaces"}, false},
		{"the flag names the cluster", "/home/kari/prod", []string{"--kubeconfig", own, "get", "namespaces"}, false},
	} {
		script := exec.CommandContext(t.Context(), filepath.Join(r.options.State, "kubectl"), tc.arguments...)
		script.Env = append(os.Environ(), "KUBECONFIG="+tc.kubeconfig)
		out, err := script.CombinedOutput()
		says := strings.Contains(string(out), own+", and not KUBECONFIG: for the cluster of that, write --kubeconfig /home/kari/prod\n")
		if err != nil || !strings.Contains(string(out), "vitistack-system") || says != tc.says || says != strings.Contains(string(out), "not KUBECONFIG") {
			t.Errorf("%s: %v\n%s", tc.why, err, out)
		}
	}
}

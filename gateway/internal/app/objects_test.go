package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// putEvent records a Kubernetes Event about an object, some time ago.
func putEvent(t *testing.T, api *fakeapi.Server, namespace, name, uid, kind, reason, message string, ago time.Duration) {
	t.Helper()
	at := metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second))
	e := &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: meta(namespace, name)}
	e.InvolvedObject.UID = types.UID(uid)
	e.Type, e.Reason, e.Message, e.Count, e.FirstTimestamp, e.LastTimestamp = kind, reason, message, 3, at, at
	e.Source.Component = "create-vm"
	api.Put(t, "events", e)
}

// aProvider is a hypervisor whose credentials are missing, with Events of its own and of another object.
func aProvider(t *testing.T, api *fakeapi.Server) {
	t.Helper()
	api.Serve("events")
	p := &v1alpha1.MachineProvider{TypeMeta: vitistack("v1alpha1", "MachineProvider"), ObjectMeta: meta("", "pve")}
	p.Spec.Type, p.Status.Phase = v1alpha1.ProviderProxmox, v1alpha1.ProviderFailed
	p.Status.Conditions = append(readyFor(time.Hour, "CredentialsMissing", "Secret pve does not exist: create it"),
		metav1.Condition{Type: "OrphansFound", Status: metav1.ConditionFalse, Reason: "NoOrphans", LastTransitionTime: metav1.NewTime(time.Now())})
	api.Put(t, "machineproviders", p)
	putEvent(t, api, "default", "older", "uid-pve", "Normal", "Healthy", "the hypervisor answers", time.Hour)
	putEvent(t, api, "default", "newer", "uid-pve", "Warning", "CredentialsMissing", "Secret pve does not exist: create it", time.Minute)
	putEvent(t, api, "default", "foreign", "uid-other", "Normal", "Foreign", "of another object", time.Minute)
}

// TestObject reads the conditions and the Kubernetes Events of an object of any kind.
func TestObject(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { aProvider(t, api) })
	s.waitReady()
	got := s.get("/api/v1/objects/uid-pve").object(t)
	if got["kind"] != "MachineProvider" || got["name"] != "pve" || got["partial"] != nil {
		t.Errorf("the object is %v", got)
	}
	conditions := got["conditions"].([]any)
	if first := conditions[0].(map[string]any); first["owner"] != "platform team" || first["advice"] == "" {
		t.Errorf("the condition is %v", first)
	}
	events := got["events"].([]any)
	if len(events) != 2 || events[0].(map[string]any)["reason"] != "CredentialsMissing" || events[0].(map[string]any)["count"] != 3.0 || events[0].(map[string]any)["source"] != "create-vm" {
		t.Errorf("the Events are %v", events)
	}
	if r := s.get("/api/v1/objects/uid-none"); r.StatusCode != http.StatusNotFound {
		t.Errorf("an object that does not exist: %s %s", r.Status, r.body)
	}
	s.api.FailResource("events", http.StatusForbidden)
	s.api.Put(t, "machines", aMachine("team-a", "web", "Running"))
	eventually(t, "the machine", func() bool { return s.get("/api/v1/machines/uid-web").StatusCode == http.StatusOK })
	if got := s.get("/api/v1/objects/uid-web").object(t); got["partial"] == nil || got["events"] == nil {
		t.Errorf("an object whose Events the gateway may not read: %v", got)
	}
}

// TestObjectWithManyEvents reads an object with more Kubernetes Events than an answer has, as a cluster of hundreds of nodes gets while it is created.
// The newest one, whose name is the last, is the first.
func TestObjectWithManyEvents(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) {
		api.Serve("events")
		api.Put(t, "kubernetesclusters", aCluster("team-a", "shop", "Creating"))
		for i := range 600 {
			putEvent(t, api, "team-a", fmt.Sprintf("shop.%03d", i), "uid-shop", "Normal", "MachinesNotRunning", "600 machines are not running", time.Hour-time.Duration(i)*time.Second)
		}
		putEvent(t, api, "team-a", "shop.zzz", "uid-shop", "Warning", "MachineFailed", "Machine shop-w-7 has failed", 0)
	})
	s.waitReady()
	events := s.get("/api/v1/objects/uid-shop").object(t)["events"].([]any)
	if first := events[0].(map[string]any); len(events) != 200 || first["reason"] != "MachineFailed" {
		t.Errorf("there are %d Events, and the first is %v", len(events), first)
	}
}

// TestPausedObject says in every answer about an object that the annotation vitistack.io/paused keeps functions from changing it, and who removes it.
func TestPausedObject(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) {
		c := aCluster("team-a", "shop", "Running")
		c.Status.Conditions = readyFor(time.Hour, "WaitingForNodes", "waiting for web-1")
		c.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""}
		api.Put(t, "kubernetesclusters", c)
		api.Put(t, "kubernetesclusters", aCluster("team-a", "other", "Running"))
		m := aMachine("team-a", "web", "Running")
		m.Annotations = c.Annotations
		api.Put(t, "machines", m)
		api.Serve("events")
	})
	s.waitReady()
	check := func(path string, pause any, object string) {
		t.Helper()
		paused, _ := pause.(map[string]any)
		if remedy, _ := paused["remedy"].(string); paused["turn"] != "platform team" || !strings.HasSuffix(remedy, "kubectl annotate "+object+" -n team-a vitistack.io/paused-") {
			t.Errorf("%s: the pause is %v", path, pause)
		}
	}
	for _, path := range []string{"/api/v1/objects/uid-shop", "/api/v1/clusters/uid-shop/conditions"} {
		got := s.get(path).object(t)
		check(path, got["paused"], "kubernetescluster shop")
		if ready := got["conditions"].([]any)[0].(map[string]any); ready["owner"] != "platform team" || ready["advice"] != got["paused"].(map[string]any)["remedy"] {
			t.Errorf("%s: no node makes the cluster Ready while it is paused: %v", path, ready)
		}
	}
	for _, path := range []string{"/api/v1/objects/uid-other", "/api/v1/clusters/uid-other/conditions"} {
		if got := s.get(path).object(t); got["paused"] != nil {
			t.Errorf("%s: a cluster without the annotation: %v", path, got)
		}
	}
	machine := s.get("/api/v1/machines/uid-web").object(t)
	check("/api/v1/machines", machine["warnings"].([]any)[0], "machine web")
}

// TestPageObject shows the conditions of a hypervisor in words that fit their status, and the Kubernetes Events about it.
func TestPageObject(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { aProvider(t, api) })
	s.waitReady()
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/providers/pve")
	b.Wait("the Events", `document.querySelectorAll(".history li").length === 2`)
	if got := b.Text(".history li"); !strings.Contains(got, "Credentials missing create-vm, 3 times since") || !strings.Contains(got, "Secret pve does not exist") {
		t.Errorf("the newest event is %q", got)
	}
	for _, want := range []string{"Not ready", "Credentials missing: Secret pve does not exist", "(platform team)", "The hypervisor has no orphans"} {
		if got := b.Text(".conditions"); !strings.Contains(got, want) {
			t.Errorf("the conditions lack %q:\n%s", want, got)
		}
	}
	if icons := browser.Eval[string](b, `[...document.querySelectorAll(".conditions li")].map((x) => x.querySelector("strong").innerText + ":" + x.querySelector(".icon").classList[1]).join()`); icons != "The hypervisor has no orphans:good,Not ready:act" {
		t.Errorf("the conditions are %s", icons)
	}
	if got := browser.Eval[string](b, `import("/page/texts.js").then(({ conditionText }) => [conditionText("Ready", "False"), conditionText("NodesReady", "Unknown"), conditionText("SomeNewThing", "False")].join("; "))`); got != "Not ready; Not known: Every node is ready; Not true: Some new thing" {
		t.Errorf("conditions in words: %s", got)
	}
	if got, want := browser.Eval[string](b, `document.querySelector(".conditions a.about").href`), cause.PageOf("MachineProvider", "CredentialsMissing"); got != want || want == "" {
		t.Errorf("the condition leads to %q, want %q", got, want)
	}
	b.Accessible("provider")
	b.Clean()
}

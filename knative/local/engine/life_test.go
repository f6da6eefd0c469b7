package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
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

func idleFunctionStops(t *testing.T, r *env) {
	r.eventually("the idle function is stopped", func() bool { return r.process("paint").State == process.StateStopped })
	before := r.process("paint")
	if before.LastStartMillis <= 0 || before.LastError != "" {
		t.Errorf("after a start and a stop: %+v", before)
	}
	r.create("two")
	r.awaitRecord("paint", "dev.knative.apiserver.ref.add", "two")
	if after := r.process("paint"); after.Starts != before.Starts+1 {
		t.Errorf("%d starts, want one more than %d", after.Starts, before.Starts)
	}
	r.eventually("the idle function is stopped again", func() bool { return r.process("paint").State == process.StateStopped })
}

// idleSystemWritesNothing counts requests that write while the system is idle.
func idleSystemWritesNothing(t *testing.T, r *env) {
	const idle = 8 * time.Second
	began := time.Now()
	<-time.After(idle)
	file, err := os.Open(filepath.Join(r.options.State, "logs", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var entry struct {
			Verb, RequestURI string
			Time             time.Time                 `json:"requestReceivedTimestamp"`
			User             struct{ Username string } `json:"user"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Time.After(began) && !slices.Contains([]string{"get", "list", "watch"}, entry.Verb) {
			t.Errorf("%s %s by %s in an idle system", entry.Verb, entry.RequestURI, entry.User.Username)
		}
	}
}

func killedComponentsComeBack(_ *testing.T, r *env) {
	for _, name := range []string{"apiserversource", "kube-controllers", "etcd", "kube-apiserver", "gateway", "extra"} {
		before := r.process(name)
		r.post("/kill/"+name, http.StatusNoContent)
		r.eventually(name+" is ready again", func() bool {
			now := r.process(name)
			return now.State == process.StateReady && now.Starts == before.Starts+1 && now.PID != before.PID
		})
		probe := "after-" + name
		r.eventually("a widget can be created after "+name+" was killed", func() bool {
			_, err := r.cluster.dynamic.Resource(widgets).Namespace("default").Create(context.Background(), widget(probe), metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err)
		})
		// The creation may precede the source's next watch. A later change is then the visible one.
		r.eventually("its events are delivered after "+name+" was killed", func() bool {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now())
			_, _ = r.cluster.dynamic.Resource(widgets).Namespace("default").Patch(context.Background(), probe, "application/merge-patch+json", patch, metav1.PatchOptions{})
			_, ok := r.recorded("paint", "dev.knative.apiserver.ref.update", probe)
			return ok
		})
	}
}

func cleanStop(t *testing.T, r *env) {
	var pids []int
	for _, status := range r.report().Processes {
		if status.PID != 0 {
			pids = append(pids, status.PID)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if !gone(pid) {
			t.Errorf("process %d still exists", pid)
		}
	}
	if _, err := os.Stat(filepath.Join(r.options.State, "engine.json")); !os.IsNotExist(err) {
		t.Errorf("engine.json still exists: %v", err)
	}
	if !strings.Contains(r.out.String(), "Stopped in") {
		t.Error("the stop is not printed")
	}
}

// secondStartChangesNothing checks that a second start writes nothing. An object without a manifest is deleted.
func secondStartChangesNothing(t *testing.T, r *env) {
	o := r.options
	o.Apply = nil
	o.Root = filepath.Join(t.TempDir(), "root")
	if err := os.CopyFS(o.Root, os.DirFS(r.options.Root)); err != nil {
		t.Fatal(err)
	}
	stack := filepath.Join(o.Root, "knative", "stack.yaml")
	text, err := os.ReadFile(stack)
	if err != nil {
		t.Fatal(err)
	}
	withoutLast := text[:bytes.LastIndex(text, []byte("---"))] // the Trigger of the gateway
	if err := os.WriteFile(stack, withoutLast, 0o600); err != nil {
		t.Fatal(err)
	}
	second := startRig(t, o, r.out)
	if diff := cmp.Diff(r.summary, second.summary); diff != "" {
		t.Errorf("URLs (-first +second):\n%s", diff)
	}
	get := func(gvr schema.GroupVersionResource, name string) (*unstructured.Unstructured, error) {
		return second.cluster.dynamic.Resource(gvr).Namespace("vitistack-system").Get(t.Context(), name, metav1.GetOptions{})
	}
	for _, o := range []struct {
		gvr  schema.GroupVersionResource
		name string
	}{{brokers, "vitistack"}, {triggers, "paint"}, {services, "paint"}, {sources, "widgets"}, {sinkBindings, "paint"}} {
		object, err := get(o.gvr, o.name)
		if err != nil {
			t.Fatal(err)
		}
		if object.GetGeneration() != 1 {
			t.Errorf("%s %s has generation %d after a second start", o.gvr.Resource, o.name, object.GetGeneration())
		}
	}
	if _, err := get(triggers, "gateway"); !apierrors.IsNotFound(err) {
		t.Errorf("the removed Trigger: got %v, want NotFound", err)
	}
	if err := second.stop(); err != nil {
		t.Error(err)
	}
}

package watch_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/watch"
	"github.com/vitistack/stack/tests/fakeapi"
)

var plurals = []string{
	"networknamespaces", "networkconfigurations", "ipallocations", "machines", "machineproviders", "kubernetesclusters", "nodes",
}

func machine(name, phase string) *v1alpha1.Machine {
	m := &v1alpha1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)},
	}
	m.Status.Phase = v1alpha1.MachinePhase(phase)
	return m
}

// begin watches the API server until t ends.
func begin(t *testing.T, api *fakeapi.Server) (*inventory.Store, *watch.Watcher) {
	t.Helper()
	store := inventory.NewStore("e")
	w, err := watch.New(api.Config(), "vitistack-system", store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return store, w
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// phase returns the phase of a machine in the store.
func phase(s *inventory.Store, name string) string {
	snapshot, _ := s.Commit(time.Unix(0, 0))
	if i := snapshot.Collection(inventory.TopicMachines).Find(name); i != nil {
		return i.Phase
	}
	return ""
}

func TestWatch(t *testing.T) {
	t.Parallel()
	api := fakeapi.Start(t)
	api.Serve(plurals...)
	for n := range 1200 {
		api.Put(t, "machines", machine(fmt.Sprintf("m%04d", n), "Pending"))
	}
	store, w := begin(t, api)
	<-w.Synced()
	store.Commit(time.Unix(0, 0))
	if n := len(store.Current().Collection(inventory.TopicMachines).Items); n != 1200 {
		t.Errorf("%d machines were read, want 1200 in three pages", n)
	}
	if p := w.Progress(); p[inventory.KindMachine].State != watch.Synced || p[inventory.KindVM].State != watch.Absent {
		t.Errorf("progress: %v", p)
	}
	api.Put(t, "machines", machine("m0007", "Running"))
	eventually(t, "an update", func() bool { return phase(store, "m0007") == "Running" })
	api.Delete("machines", "team-a", "m0008")
	eventually(t, "a deletion", func() bool { return phase(store, "m0008") == "" })
}

func TestAbsentKindComesLater(t *testing.T) {
	t.Parallel()
	api := fakeapi.Start(t)
	api.Serve(plurals[:3]...)
	store, w := begin(t, api)
	<-w.Synced()
	api.Put(t, "machines", machine("m1", "Running"))
	eventually(t, "the kind to be found", func() bool { return phase(store, "m1") == "Running" })
	if s := w.Progress()[inventory.KindMachine].State; s != watch.Synced {
		t.Errorf("machines are %s", s)
	}
}

func TestAPIServerFails(t *testing.T) {
	t.Parallel()
	api := fakeapi.Start(t)
	api.Serve(plurals...)
	api.Put(t, "machines", machine("m1", "Pending"))
	api.Put(t, "machines", machine("m2", "Pending"))
	api.Fail(503)
	store, w := begin(t, api)
	eventually(t, "the failure to be reported", func() bool { return w.Progress()[inventory.KindMachine].State == watch.Failing })
	select {
	case <-w.Synced():
		t.Fatal("the watches are complete while the API server fails")
	default:
	}
	api.Fail(0)
	<-w.Synced()
	eventually(t, "the machine", func() bool { return phase(store, "m1") == "Pending" })

	api.Fail(503)
	eventually(t, "the failure to be reported", func() bool { return w.Progress()[inventory.KindMachine].State == watch.Failing })
	if phase(store, "m1") != "Pending" {
		t.Error("known objects were removed because the API server fails")
	}
	api.Fail(0)
	api.Put(t, "machines", machine("m1", "Running"))
	api.Delete("machines", "team-a", "m2")
	api.Forget()
	eventually(t, "the list after the gap", func() bool { return phase(store, "m1") == "Running" && phase(store, "m2") == "" })
	eventually(t, "the recovery to be reported", func() bool { return w.Progress()[inventory.KindMachine].State == watch.Synced })
}

// TestForbiddenKindsDoNotBlock makes KubeVirt's API answer with errors only.
func TestForbiddenKindsDoNotBlock(t *testing.T) {
	t.Parallel()
	api := fakeapi.Start(t)
	api.Serve(plurals...)
	api.FailResource("nodes", 403)
	api.FailResource("virtualmachines", 503)
	_, w := begin(t, api)
	<-w.Synced()
	p := w.Progress()
	if p[inventory.KindNode].State != watch.Forbidden || p[inventory.KindVM].State != watch.Failing || p[inventory.KindCluster].State != watch.Synced {
		t.Errorf("progress: %v", p)
	}
}

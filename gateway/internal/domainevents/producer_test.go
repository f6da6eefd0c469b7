package domainevents

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/tests/stand/freeze"
	"github.com/vitistack/stack/tests/stand/servers"
)

// TestVanishedDatabase has the connections to the database hang, as after its node has lost its power. Another node has the database since, and the
// next machine is recorded there.
func TestVanishedDatabase(t *testing.T) {
	t.Parallel()
	proxy, address := freeze.New(t, servers.Postgres(t))
	log := slog.New(slog.DiscardHandler)
	past, err := history.Open(&config.Database{
		URL: address, MaxOpenConns: 5, MaxIdleConns: 1, BatchSize: 10, FlushInterval: 10 * time.Millisecond, Retention: 1000 * time.Hour,
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	store, shown := inventory.NewStore("test"), make(chan string, 10)
	p := New(Options{
		Store: store, History: past, Log: log, Timeout: time.Second,
		Synced:     func(inventory.Kind) bool { return true },
		Version:    func(context.Context, inventory.Kind, string, string, string) (string, error) { return "", nil },
		Deliveries: func(event.Event, string, bool) []history.Delivery { return nil },
		Show:       func(e event.Event, _ string) { shown <- e.ID() },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	begin := make(chan struct{})
	close(begin)
	running.Go(func() { past.Run(ctx) })
	running.Go(func() { p.Run(ctx, begin) })
	t.Cleanup(func() {
		proxy.Cut()
		cancel()
		running.Wait()
	})
	<-past.Migrated()
	for _, name := range []string{"before", "after"} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name, UID: types.UID(name), ResourceVersion: "7", CreationTimestamp: metav1.NewTime(time.Now().Add(time.Minute)),
		}}
		m.Status.Phase = v1alpha1.MachineRunning
		o, err := inventory.FromKubernetes(m)
		if err != nil {
			t.Fatal(err)
		}
		store.Put(o)
		_, changes := store.Commit(time.Now())
		p.Changed(changes)
		select {
		case id := <-shown:
			if id != name+".created" {
				t.Fatalf("the event %s, want that of %s", id, name)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the machine %s is not recorded", name)
		}
		proxy.Freeze()
	}
}

package resyncrequest

import (
	"fmt"
	"testing"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// TestNewRequest names the objects that are due, unless they are too many: then resync reads all.
func TestNewRequest(t *testing.T) {
	t.Parallel()
	for due, want := range map[int]int{1: 1, mostNamed: mostNamed, mostNamed + 1: 0} {
		var found []*inventory.Object
		for i := range due {
			found = append(found, &inventory.Object{Kind: inventory.KindMachine, Key: inventory.Key{Namespace: "team-a", Name: fmt.Sprint("vm-", i)}})
		}
		e, err := newRequest(found, 7)
		if err != nil {
			t.Fatal(err)
		}
		var data events.ResyncRequested
		if err := e.DataAs(&data); err != nil {
			t.Fatal(err)
		}
		if len(data.Objects) != want || e.ID() != "round-7" {
			t.Errorf("request %s for %d objects names %d, want %d", e.ID(), due, len(data.Objects), want)
		}
		if want > 0 && data.Objects[0] != (events.DueObject{Kind: "Machine", Namespace: "team-a", Name: "vm-0"}) {
			t.Errorf("the request names %+v first", data.Objects[0])
		}
	}
}

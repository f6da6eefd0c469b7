package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/vitistack/stack/events"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestOvertaken deletes a NetworkConfiguration while its reservation is on its way to
// the server, and has another delivery release it before it arrives: at the first
// grant, whose status cannot be written any more, and at one that repairs what
// somebody has removed, which writes no status.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	changes := map[sim.Generation]string{sim.Kea3: `"reservation-add"`, sim.Kea2: `"config-set"`}
	for name, repaired := range map[string]bool{"First": false, "Repaired": true} {
		for generation, command := range changes {
			t.Run(name+string(generation), func(t *testing.T) {
				t.Parallel()
				subnet := stand.Subnet{ID: 7, Subnet: "10.77.0.0/24"}
				b := simulate(t, generation, stand.Options{Subnets: []stand.Subnet{subnet}})
				var w *world
				armed := !repaired
				front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					if armed && bytes.Contains(body, []byte(command)) {
						armed = false
						w.delete("vm")
						if err := deliver(t.Context(), w.function([]string{b.URL()}), "NetworkConfiguration", w.namespace, "vm", events.TypeRefUpdate); err != nil {
							t.Error(err)
						}
						if !w.gone("vm") {
							t.Error("it has to be gone before its reservation arrives")
						}
					}
					b.ServeHTTP(rw, r)
				}))
				t.Cleanup(front.Close)
				w = newWorld(t, []string{front.URL})
				w.network("net", "10.77.0.0/24", nil)
				w.configuration("vm", []string{macA}, nil)
				if repaired {
					w.settle("vm")
					forget(t, b, subnet)
					armed = true
				}
				_ = w.deliver("NetworkConfiguration", "vm", events.TypeResync)
				if armed {
					t.Error("nothing was reserved")
				}
				if left := hosts(t, b); len(left) > 0 {
					t.Errorf("reservations %v are left of what is gone", left)
				}
			})
		}
	}
}

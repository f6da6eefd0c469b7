package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/network"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestLateReservation deletes a NetworkConfiguration while the request for its reservation is still
// being sent. Another delivery releases it before the request arrives: at the first reservation, whose
// status can no longer be written, and at a repair, which writes no status. A NetworkConfiguration
// that a machine uses keeps its reservation.
func TestLateReservation(t *testing.T) {
	t.Parallel()
	changes := map[sim.Generation]string{sim.Kea3: `"reservation-add"`, sim.Kea2: `"config-set"`}
	for name, tc := range map[string]struct{ repaired, kept bool }{"First": {}, "Repaired": {repaired: true}, "Kept": {repaired: true, kept: true}} {
		for generation, command := range changes {
			t.Run(name+string(generation), func(t *testing.T) {
				t.Parallel()
				subnet := stand.Subnet{ID: 7, Subnet: "10.77.0.0/24"}
				b := simulate(t, generation, stand.Options{Subnets: []stand.Subnet{subnet}})
				var w *env
				armed := !tc.repaired
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
						if w.isDeleted("vm") == tc.kept {
							t.Errorf("it must exist before its reservation arrives: %t", tc.kept)
						}
					}
					b.ServeHTTP(rw, r)
				}))
				t.Cleanup(front.Close)
				w = newEnv(t, []string{front.URL})
				w.network("net", "10.77.0.0/24", nil)
				w.configuration("vm", []string{macA}, func(nc *v1alpha1.NetworkConfiguration) {
					if tc.kept {
						network.AddUser(nc, "one")
					}
				})
				if tc.repaired {
					w.reconcile("vm")
					forget(t, b, subnet)
					armed = true
				}
				_ = w.deliver("NetworkConfiguration", "vm", events.TypeResync)
				if armed {
					t.Error("nothing was reserved")
				}
				if left := hosts(t, b); (len(left) > 0) != tc.kept {
					t.Errorf("reservations %v are left, want them kept: %t", left, tc.kept)
				}
			})
		}
	}
}

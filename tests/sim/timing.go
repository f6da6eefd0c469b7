package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/vitistack/stack/tests/sim/talos"
)

// timing is an HTTP handler that sets the durations of the steps of nodes. PUT takes talos.Timing in nanoseconds. It applies to what begins
// afterwards, and the time until a Node is Ready to clusters that begin afterwards.
type timing struct{ fleet atomic.Pointer[talos.Fleet] }

func (t *timing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var wanted talos.Timing
	err := json.NewDecoder(r.Body).Decode(&wanted)
	if r.Method != http.MethodPut || err != nil {
		http.Error(w, fmt.Sprintf("PUT durations in nanoseconds: %v", err), http.StatusBadRequest)
		return
	}
	fleet := t.fleet.Load()
	if fleet == nil {
		http.Error(w, "there are no nodes yet", http.StatusServiceUnavailable)
		return
	}
	fleet.SetTiming(wanted)
	w.WriteHeader(http.StatusNoContent)
}

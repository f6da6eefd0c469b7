package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/vitistack/stack/tests/sim/talos"
)

// crashes is an HTTP handler that crashes nodes. PUT names the addresses of the nodes that stop, as by
// a kernel panic that no hypervisor notices. Nodes that it does not name start again.
type crashes struct{ fleet atomic.Pointer[talos.Fleet] }

func (c *crashes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var addresses []netip.Addr
	err := json.NewDecoder(r.Body).Decode(&addresses)
	if r.Method != http.MethodPut || err != nil {
		http.Error(w, fmt.Sprintf("PUT a list of addresses: %v", err), http.StatusBadRequest)
		return
	}
	fleet := c.fleet.Load()
	if fleet == nil {
		err = errors.New("there are no nodes yet")
	} else {
		err = fleet.Crash(addresses)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

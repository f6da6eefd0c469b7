package main

import (
	"testing"
)

// sites are the hypervisors that the contract is checked on, by the titles of their kinds.
var sites = map[string]func(*env) *site{
	"KubeVirt":   kubevirtSite,
	"Proxmox VE": proxmoxSite,
}

// TestContract runs the contract of hypervisors on every backend.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, at := range sites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runContract(t, func(t *testing.T) *ht { return newEnv(t, at).ht })
		})
	}
}

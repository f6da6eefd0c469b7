package main

import (
	"testing"

	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
)

// sites returns the hypervisor that the contract is checked on, by the title of its kind.
var sites = map[string]func(*env) *hypervisortest.Site{
	"KubeVirt":   kubevirtSite,
	"Proxmox VE": proxmoxSite,
}

// TestContract runs the contract of hypervisors on every backend.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, at := range sites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hypervisortest.Run(t, func(t *testing.T) *hypervisortest.Env { return newEnv(t, at).Env })
		})
	}
}

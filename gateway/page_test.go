package main

import (
	"testing"

	"github.com/vitistack/stack/gateway/fakeapi"
)

// pages are all views of the busy data centre, and a text that each has to show.
var pages = []struct{ name, hash, shows string }{
	{"overview", "#/overview", "Needs attention"},
	{"pipeline", "#/pipeline", "Dead letters"},
	{"clusters", "#/clusters", "analytics"},
	{"cluster", "#/clusters/team-a/shop", "Every node is ready"},
	{"cluster-large", "#/clusters/team-c/analytics", "37 ready"},
	{"machines", "#/machines", "analytics-cp-0"},
	{"machine", "#/machines/team-a/shop-cp-0", "hypervisor-01"},
	{"networks", "#/networks", "10.20.1.0/24"},
	{"network", "#/networks/team-a/team-a-net", "excluded"},
	{"addresses", "#/addresses", "10.20.1.20"},
	{"address", "#/addresses/team-a/printer", "reserved"},
	{"hosts", "#/hosts", "Proxmox VE"},
	{"provider", "#/providers/kubevirt", "v1.6.0"},
	{"events", "#/events", "Hold still"},
	{"missing", "#/clusters/team-a/nothing", "There is no cluster"},
	{"unknown", "#/nowhere", "There is no such page"},
}

// TestPageViews looks at every view in both themes, wide and narrow, with a checker
// of accessibility.
func TestPageViews(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	b := browse(t, s.url, 1440, 900)
	b.open("#/overview")
	for _, v := range pages {
		b.see(v.hash)
		b.wait(v.name, `document.querySelector("main").textContent.includes(`+quote(v.shows)+`)`)
		for _, scheme := range []string{"light", "dark"} {
			b.media("prefers-color-scheme", scheme)
			b.accessible(v.name + " " + scheme)
			b.picture(v.name + "-" + scheme)
		}
		b.size(320, 800)
		if overflow := eval[int](b, `document.documentElement.scrollWidth - innerWidth`); overflow > 0 {
			t.Errorf("%s is %d px too wide for 320 px", v.name, overflow)
		}
		b.picture(v.name + "-narrow")
		b.size(1440, 900)
	}
	b.clean()
}

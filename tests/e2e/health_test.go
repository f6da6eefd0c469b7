package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/browser"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// noticedWithin is how long an outage or a recovery may take to show, once a request or a probe speaks to the backend.
const noticedWithin = 30 * time.Second

// frozen are the backends that stop with the simulators. KubeVirt of this cluster is the API server.
var frozen = []string{"kea", "nam", "netbox", "proxmox", "talos"}

// TestBackendsThatFail stops the processes of all backends without ending them, so that they accept connections and do not answer, and
// then kills them. REST shows that for each, and the recovery.
func TestBackendsThatFail(t *testing.T) {
	t.Parallel()
	u := &env{engine.Start(t, "--config", "RESYNC_PERIOD=5s"), t}
	u.Apply("default", u.StaticNetwork("network", 10, 250))
	u.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	for _, file := range []string{"simple-kubernetescluster.yaml", "basic-vm-on-proxmox.yaml", "tour-networks.yaml", "tour-dhcp.yaml"} {
		u.Apply("default", u.Example(file))
	}
	u.UntilPhase(engine.NetworkNamespaces, "tour-nam", "automated", "Ready")
	u.UntilPhase(engine.NetworkNamespaces, "tour-netbox", "documented", "Ready")
	u.UntilPhase(engine.NetworkConfigurations, "tour-dhcp", "printer", "Ready")
	u.UntilPhase(engine.Machines, "default", "basic-vm-on-proxmox", "Running")
	u.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	u.awaitProbe()

	page := browser.New(t, strings.TrimSuffix(u.Gateway(), "/"), 1200, 900)
	page.Open("#/overview")
	hang, resume := u.hangBackends()
	u.outage(page, "hang", hang, resume)
	var restart func()
	u.outage(page, "have ended", func() { restart = u.KeepDown("sim") }, func() {
		restart()
		u.AwaitSimulators() // the engine restarts them with back-off
	})
}

// outage lets all backends fail, and recover. page shows both without being opened again.
func (u *env) outage(page *browser.Tab, what string, fail, recover func()) {
	u.t.Helper()
	began := time.Now()
	fail()
	u.speakToBackends(fmt.Sprintf("stopped-%d", began.Unix()))
	for name, server := range u.backendsAre("unreachable", "all backends "+what) {
		if noticed := server.Since.Sub(began); noticed > noticedWithin {
			u.t.Errorf("backends %s: %s: the outage shows after %s", what, name, noticed)
		}
		if server.LastSeen.After(began.Add(time.Second)) || server.LastSeen.Before(began.Add(-2*time.Minute)) {
			u.t.Errorf("backends %s: %s: last seen at %s, stopped at %s", what, name, server.LastSeen, began)
		}
	}
	u.clusterIs("inactive", "failed")
	u.hostIs("unknown")
	if _, err := u.Ask("health/operators"); err == nil || !strings.Contains(err.Error(), "503") {
		u.t.Errorf("backends %s: /health/operators: %v", what, err)
	}
	for _, name := range frozen {
		page.Wait(name+" among what needs attention", `[...document.querySelectorAll(".attention > li")].some((row) => row.innerText.toLowerCase().includes(`+browser.Quote(name)+`))`)
	}
	recover()
	began = time.Now()
	u.speakToBackends(fmt.Sprintf("continued-%d", began.Unix()))
	for name, server := range u.backendsAre("healthy", "all backends answer again") {
		if noticed := server.Since.Sub(began); noticed > noticedWithin {
			u.t.Errorf("backends %s: %s: the recovery shows after %s", what, name, noticed)
		}
	}
	u.clusterIs("active")
	u.hostIs("running")
	page.Wait("nothing that needs attention", `document.querySelectorAll(".attention > li").length === 0`)
}

// hangBackends returns what stops the processes of all backends without ending them, and what lets them continue.
func (u *env) hangBackends() (hang, resume func()) {
	processes := u.processesOfBackends()
	signal := func(s syscall.Signal) {
		for _, pid := range processes {
			_ = syscall.Kill(pid, s) // a process that has ended needs none
		}
	}
	u.t.Cleanup(func() { signal(syscall.SIGCONT) })
	return func() { signal(syscall.SIGSTOP) }, func() { signal(syscall.SIGCONT) }
}

// processesOfBackends returns the process of the simulators, and the processes that it has started, such as the real Kea.
func (u *env) processesOfBackends() (pids []int) {
	u.t.Helper()
	for _, p := range u.Report().Processes {
		if p.Name == "sim" {
			pids = append(pids, p.PID)
		}
	}
	if len(pids) != 1 {
		u.t.Fatalf("the engine runs %d processes of simulators", len(pids))
	}
	return withChildren(u.t, pids)
}

// withChildren returns processes, and the processes that they have started.
func withChildren(t *testing.T, pids []int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		var state string
		_, _ = fmt.Sscan(filepath.Base(filepath.Dir(path)), &pid)
		_, _ = fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &parent)
		children[parent] = append(children[parent], pid)
	}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children[pids[i]]...)
	}
	return pids
}

// backendServer is one entry of /health/backends.
type backendServer struct {
	Backend, Name, Status string
	Since, LastSeen       time.Time
}

// backendsAre waits until each of the frozen backends has a status, and returns them.
func (u *env) backendsAre(status, what string) map[string]backendServer {
	u.t.Helper()
	all := map[string]backendServer{}
	feed.Until(u.t, what, func() (bool, string) {
		body, _ := u.Ask("health/backends") // it is 503 during an outage
		var list struct{ Backends []backendServer }
		if err := json.Unmarshal(body, &list); err != nil {
			return false, err.Error()
		}
		clear(all)
		var others []string
		for _, s := range list.Backends {
			if slices.Contains(frozen, s.Backend) {
				all[s.Backend] = s
			}
			if s.Status != status && slices.Contains(frozen, s.Backend) {
				others = append(others, s.Backend+" is "+s.Status)
			}
		}
		return len(all) == len(frozen) && len(others) == 0, fmt.Sprint(slices.Sorted(maps.Keys(all)), others)
	})
	return all
}

// awaitProbe waits until a node of Talos has answered the gateway. The silence of a node that has never answered shows nothing, because
// the gateway may have no route to it. Before the first answer, the gateway takes the time at which the cluster became Ready.
func (u *env) awaitProbe() {
	u.t.Helper()
	feed.Until(u.t, "the gateway has probed the nodes", func() (bool, string) {
		seen := u.backendsAre("healthy", "all backends answer")["talos"].LastSeen
		since := readyCondition(u.Get(engine.KubernetesClusters, "default", "simple-cluster")).LastTransitionTime.Time
		return seen.After(since), fmt.Sprintf("last seen at %s, Ready since %s", seen, since)
	})
}

// speakToBackends requests a reconcile of an object of each backend but Talos, whose nodes the gateway probes.
func (u *env) speakToBackends(token string) {
	u.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"vitistack.io/reconcile":%q}}}`, token)
	for _, o := range []struct {
		resource        schema.GroupVersionResource
		namespace, name string
	}{
		{engine.NetworkNamespaces, "tour-nam", "automated"}, {engine.NetworkNamespaces, "tour-netbox", "documented"},
		{engine.NetworkConfigurations, "tour-dhcp", "printer"}, {engine.Machines, "default", "basic-vm-on-proxmox"},
	} {
		u.patch(o.resource, o.namespace, o.name, patch)
	}
}

// clusterIs waits until the cluster has one of the statuses.
func (u *env) clusterIs(statuses ...string) {
	u.t.Helper()
	feed.Until(u.t, "the cluster is "+strings.Join(statuses, " or "), func() (bool, string) {
		body, err := u.Ask("api/v1/clusters")
		var list struct {
			Clusters []struct{ Name, Status string }
		}
		if err != nil || json.Unmarshal(body, &list) != nil || len(list.Clusters) != 1 {
			return false, fmt.Sprint(string(body), err)
		}
		reason, message := ready(u.Get(engine.KubernetesClusters, "default", "simple-cluster"))
		return slices.Contains(statuses, list.Clusters[0].Status), list.Clusters[0].Status + " " + reason + " " + message
	})
}

// hostIs waits until every host of Proxmox VE has a status.
func (u *env) hostIs(status string) {
	u.t.Helper()
	feed.Until(u.t, "the hosts of Proxmox VE are "+status, func() (bool, string) {
		body, err := u.Ask("api/v1/hosts?type=proxmox")
		var list struct {
			Hosts []struct {
				Status      string
				Schedulable bool
			}
		}
		if err != nil || json.Unmarshal(body, &list) != nil || len(list.Hosts) == 0 {
			return false, fmt.Sprint(string(body), err)
		}
		for _, h := range list.Hosts {
			if h.Status != status || h.Schedulable != (status == "running") {
				return false, string(body)
			}
		}
		return true, ""
	})
}

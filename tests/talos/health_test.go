package talos

import (
	"context"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// healthChecks are the checks of talosctl health in their order, by DefaultClusterChecks in
// https://github.com/siderolabs/talos/blob/v1.13.9/pkg/cluster/check/default.go.
var healthChecks = []string{
	"etcd to be healthy",
	"etcd members to be consistent across nodes",
	"etcd members to be control plane nodes",
	"apid to be ready",
	"all nodes memory sizes",
	"all nodes disk sizes",
	"no diagnostics",
	"kubelet to be healthy",
	"all nodes to finish boot sequence",
	"all k8s nodes to report",
	"all control plane static pods to be running",
	"all control plane components to be ready",
	"all k8s nodes to report ready",
	"kube-proxy to report ready",
	"coredns to report ready",
	"all k8s nodes to report schedulable",
}

// checkHealth checks that talosctl health passes each of its checks, for the nodes of all Machines and no others. It waits, because pods of a removed node
// are deleted later than the node.
func (e *env) checkHealth(t *testing.T) {
	t.Helper()
	out, err := e.health(t, 3*time.Minute)
	if failed := failedChecks(out); err != nil || len(failed) > 0 {
		t.Errorf("talosctl health: %v; not OK: %q\n%s", err, failed, out)
	}
	e.step("talosctl health: all %d checks are OK", len(healthChecks))
}

// health has a control plane check the cluster until it is healthy, or until a time is over. It returns the output of talosctl.
func (e *env) health(t *testing.T, wait time.Duration) (string, error) {
	t.Helper()
	controlPlanes, workers := e.machineAddresses()
	ctx, cancel := context.WithTimeout(t.Context(), wait+30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(folder(), "bin", "talosctl"), "--talosconfig", e.credential("talosconfig"), "--nodes", controlPlanes[0],
		"health", "--control-plane-nodes", strings.Join(controlPlanes, ","), "--worker-nodes", strings.Join(workers, ","), "--wait-timeout", wait.String()).CombinedOutput()
	return string(out), err
}

// failedChecks returns the checks that are not OK at the end of the output of talosctl health. A check that talosctl skips or that healthChecks does not have is
// not OK either.
func failedChecks(output string) []string {
	last := map[string]string{}
	for line := range strings.Lines(output) {
		if report, ok := strings.CutPrefix(strings.TrimSpace(line), "waiting for "); ok {
			name, state, _ := strings.Cut(report, ": ")
			last[name] = state
		}
	}
	var failed []string
	for _, name := range healthChecks {
		if last[name] != "OK" {
			failed = append(failed, name)
		}
		delete(last, name)
	}
	return append(failed, slices.Sorted(maps.Keys(last))...)
}

// checkUnhealthy checks that talosctl health fails while a worker is off.
func (e *env) checkUnhealthy(t *testing.T) {
	t.Helper()
	id := e.nodeOf(t, clusterName+"-w-0")
	e.power(id, "off")
	out, err := e.health(t, 10*time.Second)
	if failed := failedChecks(out); err == nil || len(failed) == 0 || failed[0] != "apid to be ready" {
		t.Errorf("talosctl health with a worker that is off: %v; not OK: %q\n%s", err, failed, out)
	}
	e.power(id, "on")
	e.step("talosctl health fails while a worker is off")
}

// healthy is the output of talosctl health for a healthy cluster.
func healthy() string {
	var out strings.Builder
	out.WriteString("discovered nodes: [\"10.195.0.11\" \"10.195.0.12\"]\n")
	for _, name := range healthChecks {
		out.WriteString("waiting for " + name + ": ...\nwaiting for " + name + ": OK\n")
	}
	return out.String()
}

// TestFailedChecks reads outputs of talosctl health.
func TestFailedChecks(t *testing.T) {
	t.Parallel()
	off := "waiting for apid to be ready: 1 error occurred:\n\t* 10.195.0.12: rpc error: code = Unavailable\n\nhealthcheck error: context deadline exceeded\n"
	_, afterApid, _ := strings.Cut(healthy(), "waiting for apid to be ready")
	for _, row := range []struct {
		reason, output string
		failed         []string
	}{
		{"all checks are OK", healthy(), nil},
		{"a check fails first, and is OK at the end", "waiting for no diagnostics: active diagnostics: a\n" + healthy(), nil},
		{"talosctl prints nothing", "", healthChecks},
		{"the last report of a check is an error", healthy() + "waiting for coredns to report ready: some pods are not ready: [coredns-1]\n", []string{"coredns to report ready"}},
		{"a check is skipped", strings.Replace(healthy(), "coredns to report ready: OK", "coredns to report ready: SKIP", 1), []string{"coredns to report ready"}},
		{"a check is still in progress", strings.Replace(healthy(), "waiting for no diagnostics: OK\n", "", 1), []string{"no diagnostics"}},
		{"a node is off: the checks after the failed one are not made", strings.TrimSuffix(healthy(), "waiting for apid to be ready"+afterApid) + off, healthChecks[3:]},
		{"a version of Talos has another check", healthy() + "waiting for the moon: OK\n", []string{"the moon"}},
	} {
		if failed := failedChecks(row.output); !slices.Equal(failed, row.failed) {
			t.Errorf("%s: failed checks %q, want %q", row.reason, failed, row.failed)
		}
	}
}

package talos

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

func TestStatusOf(t *testing.T) {
	t.Parallel()
	running := facts{
		stage: runtime.MachineStageRunning, controlPlane: true, configured: true, services: true, etcd: etcdUp, quorum: true,
		nodename: "cp", nodeKnown: true, nodeReady: true, staticPods: []string{"kube-apiserver"}, podsReady: 1,
	}
	with := func(change func(*facts)) facts {
		f := running
		change(&f)
		return f
	}
	cases := map[string]struct {
		reason string
		facts  facts
		want   map[string]string
	}{
		"Maintenance": {"maintenance is always ready", facts{stage: runtime.MachineStageMaintenance}, nil},
		"Ready":       {"everything runs", running, nil},
		"BeforeBootstrap": {
			"etcd waits for a bootstrap, and the node for the cluster",
			with(func(f *facts) {
				f.stage, f.etcd, f.quorum, f.nodeKnown, f.staticPods = runtime.MachineStageBooting, etcdWaiting, false, false, nil
			}),
			map[string]string{"services": "etcd not running", "nodeReady": `node "cp" status is not available yet`},
		},
		"EarlyWorker": {
			"the container runtime is not up",
			facts{stage: runtime.MachineStageBooting, configured: true, nodename: "w"},
			map[string]string{"services": "kubelet not running", "nodeReady": `node "w" status is not available yet`},
		},
		"NoQuorum": {
			"etcd runs and is not healthy", with(func(f *facts) { f.quorum = false }),
			map[string]string{"services": "etcd not healthy"},
		},
		"NodeNotReady": {
			"the node is not ready", with(func(f *facts) { f.nodeReady = false }),
			map[string]string{"nodeReady": `node "cp" is not ready`},
		},
		"PodsNotReady": {
			"static pods start last", with(func(f *facts) { f.podsReady = 0 }),
			map[string]string{"staticPods": "kube-system/kube-apiserver-cp not ready"},
		},
		"Unregistered": {"a machine without a Node needs none", with(func(f *facts) { f.nodename, f.nodeKnown = "", false }), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := statusOf(tc.facts)
			var unmet map[string]string
			for _, u := range got.unmet {
				if unmet == nil {
					unmet = map[string]string{}
				}
				unmet[u.Name] = u.Reason
			}
			if diff := cmp.Diff(tc.want, unmet); diff != "" || got.ready != (len(tc.want) == 0) {
				t.Errorf("%s: ready %v (-want +got):\n%s", tc.reason, got.ready, diff)
			}
		})
	}
}

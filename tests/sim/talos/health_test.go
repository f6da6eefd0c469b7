package talos_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/sim/talos"
)

// TestHealthCheck compares a cluster of one control plane and one worker with nodes in the request of talosctl health, as
// https://github.com/siderolabs/talos/blob/v1.13.9/pkg/cluster/check/default.go does.
func TestHealthCheck(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	c := r.cluster(1, 1)
	plane, worker, absent := r.addr(2), r.addr(3), r.addr(9)
	healthy := "waiting for all k8s nodes to report schedulable: OK"
	check := func(reason string, planes, workers []string, last string) {
		t.Helper()
		wait := patience
		if last != healthy {
			wait = time.Second
		}
		got, err := health(t, c, wait, &clusterapi.ClusterInfo{ControlPlaneNodes: planes, WorkerNodes: workers})
		if (err == nil) != (last == healthy) || (err != nil && client.StatusCode(err) != codes.DeadlineExceeded) || !strings.HasPrefix(got, last) {
			t.Errorf("%s: the last message is %q, %v; want %q", reason, got, err, last)
		}
	}
	check("all nodes are healthy", []string{plane}, []string{worker}, healthy)
	check("without addresses, the cluster is all that has joined", nil, nil, healthy)
	check("the worker is a Node that is not in the request", []string{plane}, nil, `waiting for all k8s nodes to report: unexpected nodes with IPs ["`+worker)
	check("a worker in the request does not exist", []string{plane}, []string{worker, absent}, "waiting for apid to be ready: "+absent)
	check("a control plane in the request does not exist", []string{plane, absent}, []string{worker}, "waiting for etcd to be healthy: "+absent)
	check("the control plane is not in the request", nil, []string{worker}, "waiting for etcd members to be control plane nodes: ")

	cordon := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := r.kube().CoreV1().Nodes().Patch(t.Context(), "worker-3", types.MergePatchType, cordon, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	check("the worker is cordoned", []string{plane}, []string{worker}, "waiting for all k8s nodes to report schedulable: some nodes are not schedulable: [worker-3]")
	if err := r.fleet.PowerOff(r.ids[3]); err != nil {
		t.Fatal(err)
	}
	check("the worker is off", []string{plane}, []string{worker}, "waiting for apid to be ready: "+worker)
}

// health returns the last message of a health check, and the error with which it ends.
func health(t *testing.T, c *client.Client, wait time.Duration, of *clusterapi.ClusterInfo) (last string, err error) {
	t.Helper()
	stream, err := c.ClusterHealthCheck(t.Context(), wait, of)
	if err != nil {
		return "", err
	}
	for {
		progress, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = progress.GetMessage()
	}
}

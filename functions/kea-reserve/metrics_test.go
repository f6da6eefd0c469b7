package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	sim "github.com/vitistack/stack/tests/sim/kea"
	"github.com/vitistack/stack/tests/stand/feed"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	primary, secondary := simulate(t, sim.Kea3, stand.Options{}), simulate(t, sim.Kea3, stand.Options{})
	w := newEnv(t, []string{primary.URL(), secondary.URL()})
	w.network("net", "10.77.0.0/24", nil)
	w.configuration("vm", []string{macA}, nil)
	w.must(primary.faults.Set(faults.Rule{Error: "503"}))
	w.reconcile("vm")
	var b bytes.Buffer
	metrics.WritePrometheus(&b, false)
	lines := strings.Split(b.String(), "\n")
	for _, want := range []string{
		`kea_operator_server_health{server="primary",type="dhcp4"}`,
		`kea_operator_failovers_total`,
		`kea_operator_dhcp_reservations_total{operation="add",status="success"}`,
		`kea_operator_errors_total{operation="list-commands",server="primary",error_type="ServerFault"}`,
		`kea_operator_dhcp_operation_duration_seconds_count{operation="reservation-add",server="secondary"}`,
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want+" ") }) {
			t.Errorf("there is no metric %s", want)
		}
	}
}

// TestKept has a control plane at one of two addresses.
func TestKept(t *testing.T) {
	t.Parallel()
	b := simulate(t, sim.Kea3, stand.Options{})
	w := newEnv(t, []string{b.URL()})
	w.network("net", "10.77.0.0/29", nil)
	cluster := &v1alpha1.KubernetesCluster{}
	cluster.Namespace, cluster.Name = w.namespace, "cluster"
	cluster.Spec.Topology = v1alpha1.ClusterTopology{Version: "1.33", ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: 1}}
	cluster.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointVIP, Address: "10.77.0.3"}
	w.must(w.kube.Create(t.Context(), cluster))
	feed.Until(t, "the API server's cache has the cluster", func() (bool, string) {
		list := &v1alpha1.KubernetesClusterList{}
		err := w.kube.ListCached(t.Context(), w.namespace, "", list)
		return len(list.Items) == 1, fmt.Sprint(err)
	})
	var got []string
	for i, mac := range []string{"52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03", "52:54:00:00:00:04"} {
		name := "vm" + string(rune('a'+i))
		w.configuration(name, []string{mac}, nil)
		got = append(got, addressOf(t, w.reconcile(name), 0))
	}
	slices.Sort(got)
	if want := []string{"10.77.0.2", "10.77.0.4", "10.77.0.5", "10.77.0.6"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: the gateway has .1 and the control plane .3", got, want)
	}
}

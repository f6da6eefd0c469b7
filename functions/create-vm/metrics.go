package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// metricsPrefix returns how the names of a machine's metrics begin, by the kind of its
// hypervisor. If that is not known yet, the machine counts as one of KubeVirt's.
func metricsPrefix(m *v1alpha1.Machine, kind v1alpha1.ProviderType) string {
	scheme, _, _ := strings.Cut(m.Status.ProviderID, "://")
	for _, name := range []string{string(kind), scheme} {
		if k, ok := backend.Find(name); ok {
			return k.MetricsPrefix
		}
	}
	return "kubevirt_operator"
}

// countReconcile counts one reconcile of a Machine by its duration and its result.
func countReconcile(prefix string, err error, took time.Duration) {
	metrics.GetOrCreatePrometheusHistogram(prefix + `_reconciliation_duration_seconds{controller="Machine"}`).Update(took.Seconds())
	problem, isUserError := asUserError(err)
	switch {
	case err == nil, errors.As(err, new(reconcile.WaitError)):
		return
	case !isUserError:
		problem.Reason = "ProviderUnavailable"
	}
	metrics.GetOrCreateCounter(fmt.Sprintf(`%s_reconciliation_errors_total{controller="Machine",error_type=%q}`, prefix, problem.Reason)).Inc()
	var network networkError
	if errors.As(err, &network) {
		metrics.GetOrCreateCounter(fmt.Sprintf(`%s_network_configuration_errors_total{network_name=%q}`, prefix, network.network)).Inc()
	}
}

// gauges are the gauges of this process by their names.
var gauges struct {
	sync.Mutex
	gauges map[string]*metrics.Gauge
}

// countByPhase returns the values of the gauges of all machines, by their names: machines by phase and template, and by phase those with
// a virtual machine. Each kind of hypervisor that has a MachineProvider has its gauges of Running machines even at 0, because a push
// that lacks a family leaves what an earlier process has pushed.
func countByPhase(machines []v1alpha1.Machine, providers []v1alpha1.MachineProvider) map[string]float64 {
	kinds, count := map[string]v1alpha1.ProviderType{}, map[string]float64{}
	add := func(prefix string, phase v1alpha1.MachinePhase, template string, hasVM bool, n float64) {
		count[fmt.Sprintf(`%s_machines_total{phase=%q,template=%q}`, prefix, phase, template)] += n
		if hasVM {
			count[fmt.Sprintf(`%s_virtual_machines_total{status=%q}`, prefix, phase)] += n
		}
	}
	for _, p := range providers {
		kinds[p.Name] = p.Spec.Type
		for _, template := range v1alpha1.BuiltInClasses() {
			add(metricsPrefix(&v1alpha1.Machine{}, p.Spec.Type), v1alpha1.MachineRunning, template.Name, true, 0)
		}
	}
	for i := range machines {
		m := &machines[i]
		add(metricsPrefix(m, kinds[m.Status.Provider]), m.Status.Phase, m.Spec.Template, m.Status.VMName != "", 1)
	}
	return count
}

// setMachineGauges sets the gauges of all machines.
func setMachineGauges(machines []v1alpha1.Machine, providers []v1alpha1.MachineProvider) {
	count := countByPhase(machines, providers)
	gauges.Lock()
	defer gauges.Unlock()
	if gauges.gauges == nil {
		gauges.gauges = map[string]*metrics.Gauge{}
	}
	for name := range count {
		if gauges.gauges[name] == nil {
			gauges.gauges[name] = metrics.GetOrCreateGauge(name, nil)
		}
	}
	for name, gauge := range gauges.gauges {
		gauge.Set(count[name])
	}
}

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// operatorOf returns the prefix of a machine's metrics: the operator of its hypervisor, or
// KubeVirt's if the hypervisor is not known yet.
func operatorOf(m *v1alpha1.Machine, kind v1alpha1.ProviderType) string {
	if kind == "" && strings.HasPrefix(m.Status.ProviderID, string(v1alpha1.ProviderProxmox)) {
		kind = v1alpha1.ProviderProxmox
	}
	if kind == "" {
		kind = v1alpha1.ProviderKubeVirt
	}
	return string(kind) + "_operator"
}

// countReconcile counts one reconcile of a Machine by its duration and its result.
func countReconcile(operator string, err error, took time.Duration) {
	metrics.GetOrCreatePrometheusHistogram(operator + `_reconciliation_duration_seconds{controller="Machine"}`).Update(took.Seconds())
	f, isFault := asUserError(err)
	switch {
	case err == nil, errors.As(err, new(reconcile.WaitError)):
		return
	case !isFault:
		f.Reason = "ProviderUnavailable"
	}
	metrics.GetOrCreateCounter(fmt.Sprintf(`%s_reconciliation_errors_total{controller="Machine",error_type=%q}`, operator, f.Reason)).Inc()
	var u networkError
	if errors.As(err, &u) {
		metrics.GetOrCreateCounter(fmt.Sprintf(`%s_network_configuration_errors_total{network_name=%q}`, operator, u.network)).Inc()
	}
}

// gauges are the gauges that countAll has set.
var gauges struct {
	sync.Mutex
	gauges map[string]*metrics.Gauge
}

// setMachineGauges sets the gauges of all machines: by phase and template, and by phase those
// with a virtual machine.
func setMachineGauges(machines []v1alpha1.Machine, providers []v1alpha1.MachineProvider) {
	kinds := map[string]v1alpha1.ProviderType{}
	for _, p := range providers {
		kinds[p.Name] = p.Spec.Type
	}
	count := map[string]float64{}
	for i := range machines {
		m := &machines[i]
		operator := operatorOf(m, kinds[m.Status.Provider])
		count[fmt.Sprintf(`%s_machines_total{phase=%q,template=%q}`, operator, m.Status.Phase, m.Spec.Template)]++
		if m.Status.VMName != "" {
			count[fmt.Sprintf(`%s_virtual_machines_total{status=%q}`, operator, m.Status.Phase)]++
		}
	}
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

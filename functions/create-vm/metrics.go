package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// operatorOf is what the names of a machine's metrics begin with: the operator of
// its hypervisor, which is KubeVirt's where that is not known yet.
func operatorOf(m *v1alpha1.Machine, kind v1alpha1.ProviderType) string {
	if kind == "" && strings.HasPrefix(m.Status.ProviderID, string(v1alpha1.ProviderProxmox)) {
		kind = v1alpha1.ProviderProxmox
	}
	if kind == "" {
		kind = v1alpha1.ProviderKubeVirt
	}
	return string(kind) + "_operator"
}

// settled counts one look at a Machine, how long it took, and what came of it.
func settled(operator string, err error, took time.Duration) {
	metrics.GetOrCreatePrometheusHistogram(operator + `_reconciliation_duration_seconds{controller="Machine"}`).Update(took.Seconds())
	f, isFault := asFault(err)
	switch {
	case err == nil, errors.As(err, new(reconcile.WaitError)):
		return
	case !isFault:
		f.Reason = "ProviderUnavailable"
	}
	metrics.GetOrCreateCounter(fmt.Sprintf(`%s_reconciliation_errors_total{controller="Machine",error_type=%q}`, operator, f.Reason)).Inc()
	var u unjoined
	if errors.As(err, &u) {
		metrics.GetOrCreateCounter(fmt.Sprintf(`%s_network_configuration_errors_total{network_name=%q}`, operator, u.network)).Inc()
	}
}

// provisioned counts how long disks that are there now were waited for.
func provisioned(claims []corev1.PersistentVolumeClaim, now time.Time) {
	for _, c := range claims {
		class := ""
		if c.Spec.StorageClassName != nil {
			class = *c.Spec.StorageClassName
		}
		stored(v1alpha1.ProviderKubeVirt, class, now.Sub(c.CreationTimestamp.Time))
	}
}

// slow are the upper bounds of what takes seconds or minutes.
var slow = []float64{.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// stored counts how long one disk was waited for.
func stored(kind v1alpha1.ProviderType, class string, took time.Duration) {
	metrics.GetOrCreatePrometheusHistogramExt(fmt.Sprintf(`%s_operator_storage_provisioning_duration_seconds{storage_class=%q}`, kind, class), slow).
		Update(took.Seconds())
}

// counted are the gauges that countAll has set.
var counted struct {
	sync.Mutex
	gauges map[string]*metrics.Gauge
}

// countAll sets the gauges of all machines: by phase and template, and by phase
// those with a virtual machine.
func countAll(machines []v1alpha1.Machine, providers []v1alpha1.MachineProvider) {
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
	counted.Lock()
	defer counted.Unlock()
	if counted.gauges == nil {
		counted.gauges = map[string]*metrics.Gauge{}
	}
	for name := range count {
		if counted.gauges[name] == nil {
			counted.gauges[name] = metrics.GetOrCreateGauge(name, nil)
		}
	}
	for name, gauge := range counted.gauges {
		gauge.Set(count[name])
	}
}

package main

import (
	"errors"
	"fmt"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// counted counts what the source of a network was asked for, by what came of it. A
// provider of a user's own name is external.
func counted(nn *v1alpha2.NetworkNamespace, operation string, err error) {
	provider := nn.Annotations[v1alpha1.AnnotationProvider]
	switch provider {
	case v1alpha2.ProviderManual, v1alpha2.ProviderNAM, v1alpha2.ProviderNetBox:
	case "":
		provider, _ = providerOf(nn.Spec)
	default:
		provider = "external"
	}
	metrics.GetOrCreateCounter(fmt.Sprintf(
		`vitistack_network_source_requests_total{provider=%q,operation=%q,outcome=%q}`, provider, operation, outcome(err))).Inc()
}

// outcome is OK, or the reason of the condition that an error leads to.
func outcome(err error) string {
	var f fault
	var r refused
	switch {
	case err == nil:
		return "OK"
	case errors.As(err, &f):
		return f.reason
	case errors.As(err, &r):
		return r.reason
	default:
		return "Failed"
	}
}

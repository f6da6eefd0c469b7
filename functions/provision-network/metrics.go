package main

import (
	"errors"
	"fmt"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// countRequest counts a request to the provider of a network by its result. Providers that
// are not in the registry count as external, because users choose their names.
func countRequest(nn *v1alpha2.NetworkNamespace, operation string, err error) {
	providerName := nn.Annotations[v1alpha1.AnnotationProvider]
	if providerName == "" {
		providerName, _ = plan.ProviderOf(nn.Spec)
	}
	if _, registered := registry[providerName]; !registered {
		providerName = "external"
	}
	metrics.GetOrCreateCounter(fmt.Sprintf(
		`vitistack_network_source_requests_total{provider=%q,operation=%q,outcome=%q}`, providerName, operation, requestResult(err))).Inc()
}

// requestResult returns OK, or the reason of the condition for an error.
func requestResult(err error) string {
	var e provider.Error
	userError, isUserError := reconcile.AsUserError(err)
	switch {
	case err == nil:
		return "OK"
	case errors.As(err, &e):
		return e.Reason
	case isUserError:
		return userError.Reason
	default:
		return "Failed"
	}
}

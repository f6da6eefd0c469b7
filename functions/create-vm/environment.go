package main

import (
	"log/slog"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// withoutMeaning are variables of the operator that this function stands in for,
// and what does their work here.
var withoutMeaning = []struct{ variable, instead string }{
	{"RECONCILE_INTERVAL", "changes come as events; the schedule of the PingSource resync says how often what is not settled is looked at again"},
	{"MAX_CONCURRENT_RECONCILES", "containerConcurrency and the annotation autoscaling.knative.dev/max-scale of the Knative Service bound what is done at once"},
	{"LEADER_ELECTION", "nobody leads: any number of instances may run, since every name is made once only"},
	{"METRICS_BIND_ADDRESS", "/metrics is served at PORT, the only port that Knative gives a function"},
	{"HEALTH_PROBE_BIND_ADDRESS", "/healthz and /readyz are served at PORT, the only port that Knative gives a function"},
	{"NAMESPACE", "a MachineProvider names the namespace of its Secret, which is that of the stack or one of CREDENTIALS_NAMESPACES"},
}

// reportIgnoredVariables logs which variables that are set have no meaning for a function
// without state, and what to use instead.
func reportIgnoredVariables(log *slog.Logger, getenv func(string) string) {
	for _, v := range withoutMeaning {
		if getenv(v.variable) != "" {
			log.Info("Variable has no meaning here", "function", hypervisor.FunctionName, "variable", v.variable, "instead", v.instead)
		}
	}
}

package main

import (
	"log/slog"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// ignoredVariables are settings of the operator that this function replaces,
// and what takes their place.
var ignoredVariables = []struct{ variable, instead string }{
	{"RECONCILE_INTERVAL", "changes come as events; the schedule of the PingSource resync says how often unfinished objects are reconciled again"},
	{"MAX_CONCURRENT_RECONCILES", "containerConcurrency and the annotation autoscaling.knative.dev/max-scale of the Knative Service bound what is done at once"},
	{"LEADER_ELECTION", "there is no leader: any number of instances may run, because each name is created only once"},
	{"METRICS_BIND_ADDRESS", "/metrics is served at PORT, the only port that Knative gives a function"},
	{"HEALTH_PROBE_BIND_ADDRESS", "/healthz and /readyz are served at PORT, the only port that Knative gives a function"},
	{"NAMESPACE", "a MachineProvider names the namespace of its Secret, which is that of the stack or one of CREDENTIALS_NAMESPACES"},
}

// reportIgnoredVariables logs which variables that are set have no meaning for a function
// without state, and what to use instead.
func reportIgnoredVariables(log *slog.Logger, getenv func(string) string) {
	for _, v := range ignoredVariables {
		if getenv(v.variable) != "" {
			log.Info("Variable has no meaning here", "function", hypervisor.FunctionName, "variable", v.variable, "instead", v.instead)
		}
	}
}

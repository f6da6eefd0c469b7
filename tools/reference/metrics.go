package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// family is what the page says about a metric of the gateway.
type family struct {
	Name, Kind, Help string
	Labels           []string
}

// gatewayMetrics returns the metrics that the gateway declares. Its packages are internal, so that a program of its own prints them.
func gatewayMetrics() (all []family, err error) {
	out, err := exec.CommandContext(context.Background(), "go", "run", "./gateway/internal/metrics/describe").Output()
	if err != nil {
		return nil, fmt.Errorf("describe the metrics of the gateway: %w", err)
	}
	return all, json.Unmarshal(out, &all)
}

// metricsPage returns the page about the metrics of the gateway and, from their pages, of the functions.
func metricsPage(gateway []family, functions map[string]string) string {
	var b strings.Builder
	b.WriteString(`# Metrics

The gateway serves all metrics at ` + "`/metrics`" + `, including the metrics that functions [push](../../gateway/README.md#what-functions-push) to it. [Observe](../observe.md) has the
dashboard and the alerts that use them.

## gateway

| metric | type | labels | |
|---|---|---|---|
`)
	for _, f := range gateway {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Kind, code(f.Labels), cell(f.Help))
	}
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if _, section, ok := strings.Cut(functions[name], "\n## Metrics\n"); ok {
			section, _, _ = strings.Cut(section, "\n## ")
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, strings.TrimSpace(section))
		}
	}
	return b.String()
}

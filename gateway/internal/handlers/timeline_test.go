package handlers

import (
	"testing"
	"time"
)

func TestStepStart(t *testing.T) {
	t.Parallel()
	born := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return born.Add(time.Duration(seconds) * time.Second) }
	condition := func(kind, status string, seconds int) conditionJSON {
		return conditionJSON{Type: kind, Status: status, Since: at(seconds)}
	}
	for name, tc := range map[string]struct {
		because string
		of      conditionJSON
		others  []conditionJSON
		want    int
	}{
		"First":  {"nothing comes before the first step", condition("TopologyValid", "True", 1), nil, 0},
		"Next":   {"a step begins when the one before is done", condition("MachinesRunning", "True", 30), []conditionJSON{condition("MachinesCreated", "True", 4)}, 4},
		"Skips":  {"a step without a condition takes no time", condition("NodesReady", "True", 30), []conditionJSON{condition("MachinesCreated", "True", 4)}, 4},
		"State":  {"a state of nodes is no step before others", condition("NodesReady", "True", 30), []conditionJSON{condition("EtcdHealthy", "True", 20), condition("Bootstrapped", "True", 10)}, 10},
		"Open":   {"an open step begins when the one before is done, although its condition is older", condition("MachinesRunning", "False", 1), []conditionJSON{condition("MachinesCreated", "True", 4)}, 4},
		"Outage": {"nodes that fail after an hour have not failed since the creation", condition("NodesReady", "False", 3600), []conditionJSON{condition("Bootstrapped", "True", 40)}, 3600},
		"Again":  {"a step before it was undone and done again", condition("Bootstrapped", "True", 40), []conditionJSON{condition("ConfigApplied", "True", 900)}, 40},
		"Other":  {"what is no part of the creation has no length", condition("EtcdHealthy", "True", 500), []conditionJSON{condition("Bootstrapped", "True", 40)}, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := stepStart(tc.of, append(tc.others, tc.of), born); !got.Equal(at(tc.want)) {
				t.Errorf("%s: it began at %s, want %s", tc.because, got, at(tc.want))
			}
		})
	}
}

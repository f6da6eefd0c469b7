package app

import (
	"strings"
	"testing"
)

// TestSilentEndpoints starts with settings by which events are not sent. The gateway runs, and its log says what to change.
func TestSilentEndpoints(t *testing.T) {
	t.Parallel()
	hooks := func(types string) string {
		return `--handlers.webhook.endpoints=[{"name":"hook","url":"http://127.0.0.1:1","types":[` + types + `]}]`
	}
	for name, tc := range map[string]struct {
		reason   string
		settings []string
		says     []string
		silent   []string
	}{
		"NoBroker": {reason: "domain events go to the address in K_SINK only", says: []string{"because K_SINK is empty", "SinkBinding gateway"}, silent: []string{"no event has"}},
		"Broker":   {reason: "K_SINK is set", settings: []string{"--broker.sink=http://127.0.0.1:1"}, silent: []string{"K_SINK"}},
		"Typo": {
			reason: "no event has this type", settings: []string{"--handlers.webhook.enabled=true", hooks(`"infrastructure.machine.create","infrastructure.*"`)},
			says:   []string{"names a type that no event has", `"endpoint":"hook"`, `"type":"infrastructure.machine.create"`, "infrastructure.machine.created, ", "io.vitistack.workorder.requested"},
			silent: []string{`"type":"infrastructure.*"`},
		},
		"Internal": {
			reason: "webhooks do not get changes of objects", settings: []string{"--handlers.webhook.enabled=true", hooks(`"dev.knative.apiserver.resource.add"`)},
			says: []string{`"type":"dev.knative.apiserver.resource.add"`},
		},
		"Valid": {
			reason: "events have these types", settings: []string{"--handlers.webhook.enabled=true", hooks(`"*","io.vitistack.network.*","infrastructure.machine.created"`)},
			silent: []string{"no event has"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := start(t, tc.settings...).log.String()
			for _, text := range tc.says {
				if !strings.Contains(log, text) {
					t.Errorf("the log lacks %s, although %s:\n%s", text, tc.reason, log)
				}
			}
			for _, text := range tc.silent {
				if strings.Contains(log, text) {
					t.Errorf("the log has %s, although %s:\n%s", text, tc.reason, log)
				}
			}
		})
	}
}

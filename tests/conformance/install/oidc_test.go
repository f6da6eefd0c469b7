package install

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// receiver is the OIDC configuration of a function or the gateway.
type receiver struct{ enabled, audience, subjects string }

// receivers returns the receivers in objects, by name.
func receivers(objects []*unstructured.Unstructured) map[string]receiver {
	all := map[string]receiver{}
	shared := ""
	for _, object := range objects {
		if object.GetKind() == "ConfigMap" && object.GetName() == "vitistack-config" {
			shared, _, _ = unstructured.NestedString(object.Object, "data", "OIDC_ENABLED")
		}
	}
	for _, object := range objects {
		containers, found, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if !found {
			continue
		}
		one := receiver{enabled: shared}
		env, _ := containers[0].(map[string]any)["env"].([]any)
		for _, variable := range env {
			fields := variable.(map[string]any)
			value, _ := fields["value"].(string)
			switch fields["name"] {
			case "OIDC_ENABLED":
				one.enabled = value
			case "OIDC_AUDIENCE":
				one.audience = value
			case "OIDC_SUBJECTS":
				one.subjects = value
			}
		}
		all[object.GetName()] = one
	}
	return all
}

// checkIdentities compares the configuration of each receiver with its Trigger, and the Broker's dead letters with the gateway.
func checkIdentities(t *testing.T, objects []*unstructured.Unstructured, installed, enabled string) {
	t.Helper()
	all, triggers := receivers(objects), 0
	if len(all) != 8 {
		t.Errorf("%d functions and gateways, want 8", len(all))
	}
	for name, one := range all {
		if one.enabled != enabled {
			t.Errorf("%s has OIDC_ENABLED %q, want %q", name, one.enabled, enabled)
		}
	}
	audience := func(object *unstructured.Unstructured, fields ...string) string {
		value, _, _ := unstructured.NestedString(object.Object, append(fields, "audience")...)
		return value
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "Broker":
			if got, want := audience(object, "spec", "delivery", "deadLetterSink"), all["gateway"].audience; got != want || want == "" {
				t.Errorf("dead letters have the audience %q, and the gateway has %q", got, want)
			}
		case "Trigger":
			triggers++
			if got, want := audience(object, "spec", "delivery", "deadLetterSink"), all["gateway"].audience; got != want {
				t.Errorf("dead letters of Trigger %s have the audience %q, and the gateway has %q", object.GetName(), got, want)
			}
			receiver := object.GetName()
			if receiver == "heartbeat" {
				receiver = "gateway"
			}
			one := all[receiver]
			if got := audience(object, "spec", "subscriber"); got != one.audience || got == "" {
				t.Errorf("deliveries of Trigger %s have the audience %q, and its function has %q", object.GetName(), got, one.audience)
			}
			// The name of Knative's ServiceAccount, which is truncated above 63 characters.
			account := object.GetName() + "-oidc-eventing.knative.dev-trigger"
			want := "system:serviceaccount:" + installed + ":" + account
			if len(account) > 63 {
				t.Errorf("the name of ServiceAccount %s would be truncated: shorten the name of Trigger %s", account, object.GetName())
			}
			if one.subjects != want && (receiver != "gateway" || one.subjects != "system:serviceaccount:"+installed+":*") {
				t.Errorf("%s expects %s, and Knative sends as %s", object.GetName(), one.subjects, want)
			}
		}
	}
	if triggers != 9 {
		t.Errorf("%d Triggers, want 9", triggers)
	}
}

// TestDeliveriesAreAuthenticated renders the chart without a cluster.
func TestDeliveriesAreAuthenticated(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for name, tc := range map[string]struct{ reason, set, enabled, says string }{
		"Auto":     {"no cluster confirms that Knative sends tokens", "", "", "OPEN: deliveries are not authenticated: Helm finds no ConfigMap knative-eventing/config-features: set authentication.oidc to enabled"},
		"Enabled":  {"the platform team knows that Knative sends tokens", "authentication.oidc=enabled", "true", ""},
		"Disabled": {"the platform team disables it", "authentication.oidc=disabled", "", "OPEN: deliveries are not authenticated: authentication.oidc is disabled: set it to auto"},
		"Kafka":    {"Knative's Broker on Kafka sends tokens", "authentication.oidc=enabled,broker.class=Kafka", "true", ""},
		"NATS":     {"the filter of NATS JetStream sends no tokens", "broker.class=NatsJetStreamBroker", "", "OPEN: deliveries are not authenticated: the Broker on NATS JetStream sends no tokens"},
		"Older":    {"the values of an earlier release lack it", "authentication=null", "", "OPEN: deliveries are not authenticated: Helm finds no ConfigMap"},
	} {
		checkIdentities(t, h.render(t, tc.set), namespace, tc.enabled)
		out, err := h.run(t.Context(), "install", "vitistack", chart(), "--dry-run=client", "--set", tc.set)
		if err != nil {
			t.Fatal(err)
		}
		_, notes, _ := strings.Cut(out, "NOTES:")
		if tc.says == "" && strings.Contains(notes, "not authenticated") || !strings.Contains(notes, tc.says) {
			t.Errorf("%s: the notes lack %q: %s\n%s", name, tc.says, tc.reason, notes)
		}
	}
	if _, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", "authentication.oidc=enabled,broker.class=NatsJetStreamBroker"); err == nil || !strings.Contains(err.Error(), "deliveries would all be refused: the Broker on NATS JetStream sends no tokens") {
		t.Errorf("on NATS JetStream: %v, want an error", err)
	}
}

// oidcFollowsTheCluster has Helm read from the cluster whether Knative sends tokens.
func oidcFollowsTheCluster(t *testing.T, c *cluster, h *helm) {
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "eventing-of-oidc"}}}
	if err := c.apply(t.Context(), namespace, false); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ reason, flag, set, enabled, says string }{
		{"the ConfigMap of a new installation", "", "auto", "", "authentication-oidc is disabled in ConfigMap eventing-of-oidc/config-features of Knative Eventing: set it to enabled, and upgrade this release"},
		{"the feature was switched off", "Disabled", "auto", "", "authentication-oidc is disabled"},
		{"the feature is on", "enabled", "auto", "true", ""},
		{"Knative ignores the case", "Enabled", "auto", "true", ""},
		{"the value confirms that it is on", "enabled", "enabled", "true", ""},
		{"the feature is on, and the value disables it", "enabled", "disabled", "", "authentication.oidc is disabled"},
		{"every delivery would be rejected", "disabled", "enabled", "", "authentication.oidc is enabled, and deliveries would all be refused: authentication-oidc is disabled in ConfigMap"},
	} {
		features := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "config-features", "namespace": "eventing-of-oidc"}, "data": map[string]any{"authentication-oidc": tc.flag},
		}}
		if tc.flag == "" {
			features.Object["data"] = map[string]any{"new-trigger-filters": "enabled"}
		}
		if err := c.apply(t.Context(), features, false); err != nil {
			t.Fatal(err)
		}
		out, err := h.run(t.Context(), "upgrade", "--install", "vitistack", chart(), "--dry-run=server", "--set", "networkPolicy.eventingNamespace=eventing-of-oidc,authentication.oidc="+tc.set)
		refused := tc.set == "enabled" && tc.enabled == ""
		if refused != (err != nil) {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		if got := strings.Contains(out, "\n  OIDC_ENABLED: \"true\"\n"); got != (tc.enabled != "") {
			t.Errorf("%s: deliveries are authenticated: %v", tc.reason, got)
		}
		if text := out + fmt.Sprint(err); !strings.Contains(text, tc.says) {
			t.Errorf("%s: Helm's output lacks %q", tc.reason, tc.says)
		}
	}
}

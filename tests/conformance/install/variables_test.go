package install

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// TestVariablesWithoutEffect writes variables into config.env and gateway.env that a container overrides, or that other objects of the
// chart do not follow.
func TestVariablesWithoutEffect(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ reason, set, says string }{
		"Port":          {"probes and Service lead to the port of the chart", "gateway.env.PORT=8080", "gateway.env.PORT is the value service.port: write it there"},
		"PortOfAll":     {"Knative refuses the port of a function too", "config.env.PORT=8080", "config.env.PORT is the value service.port"},
		"Schedule":      {"the PingSource would keep another schedule, and the gateway report that it is silent", "gateway.env.HEARTBEAT_SCHEDULE=* * * * *", "gateway.env.HEARTBEAT_SCHEDULE is the value heartbeat.schedule"},
		"TLS":           {"probes would speak HTTP", "gateway.env.TLS_ENABLED=true", "gateway.env.TLS_ENABLED is the value tls.enabled"},
		"Pools":         {"previews would allow what provision-network refuses", "gateway.env.NETWORK_POOLS=optional", "gateway.env.NETWORK_POOLS is the value networkPools"},
		"OfGateway":     {"the Deployment has a value of its own", "config.env.CORS_ENABLED=true", "config.env.CORS_ENABLED has no effect on the gateway, which has a value of its own: write gateway.env.CORS_ENABLED instead"},
		"OfFunctions":   {"each function has a value of its own", "config.env.METRICS_PUSH_URL=http://push.example.com", "config.env.METRICS_PUSH_URL has no effect on "},
		"ByValue":       {"a value of the chart takes precedence", "kea.url=https://kea,config.env.KEA_URL=https://other", "write functions.kea-reserve.env.KEA_URL instead"},
		"Database":      {"the Secret takes precedence", "database.existingSecret=db,config.env.DATABASE_URL=postgres://db", "database.existingSecret and config.env.DATABASE_URL"},
		"Auth":          {"the value takes precedence", "auth.enabled=true,auth.existingSecret=keys,config.env.AUTH_ENABLED=false", "config.env.AUTH_ENABLED has no effect on the gateway"},
		"Exception":     {"a function has another value than the others", "config.env.ALLOWED_ENDPOINTS=example.com,functions.create-vm.env.ALLOWED_ENDPOINTS=10.0.0.0/8", ""},
		"Replaced":      {"the gateway has what gateway.env says", "config.env.CORS_ENABLED=false,gateway.env.CORS_ENABLED=true", ""},
		"NoValue":       {"the value is empty, so the variable has an effect", "config.env.KEA_URL=https://kea", ""},
		"OnlyTokens":    {"tokens of the Kubernetes API need no file of keys", "gateway.env.AUTH_ENABLED=true,gateway.env.AUTH_TOKENREVIEW=true", ""},
		"LogsOfGateway": {"the gateway alone logs more", "gateway.env.LOG_LEVEL=debug", ""},
	}
	h := newHelm(t, &rest.Config{})
	for name, tc := range tests {
		_, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", tc.set)
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want %q: %s", name, err, tc.says, tc.reason)
		}
	}
}

// TestServicesSetNoVariables checks that Kubernetes writes no variables for the Services of the namespace into the gateway. A Service
// called cache-redis would set CACHE_REDIS_PORT to a URL, with which the gateway does not start.
func TestServicesSetNoVariables(t *testing.T) {
	t.Parallel()
	out, err := newHelm(t, &rest.Config{}).run(t.Context(), "template", "vitistack", chart())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for doc := range strings.SplitSeq(out, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind != "Deployment" {
			continue
		}
		found = true
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
			t.Fatal(err)
		}
		if links := d.Spec.Template.Spec.EnableServiceLinks; links == nil || *links {
			t.Errorf("the pods of Deployment %s get variables for each Service of the namespace", d.Name)
		}
	}
	if !found {
		t.Error("the chart has no Deployment")
	}
}

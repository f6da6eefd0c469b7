package main

import (
	"bytes"
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestTimeLimits checks that everything between the Broker and the function waits longer than a delivery lasts. Knative ends a request whose answer
// has not begun after 300 seconds by default (https://github.com/knative/serving/blob/main/pkg/apis/serving/v1/revision_defaults.go).
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	manifests, err := os.ReadFile("../../knative/etcd-backup.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var limits []time.Duration
	for document := range bytes.SplitSeq(manifests, []byte("\n---\n")) {
		u := unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			t.Fatal(err)
		}
		switch u.GetKind() {
		case "Trigger":
			text, _, _ := unstructured.NestedString(u.Object, "spec", "delivery", "timeout")
			d, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(text, "PT")))
			if err != nil {
				t.Fatal(err)
			}
			limits = append(limits, d)
		case "Service":
			for name, byDefault := range map[string]float64{"timeoutSeconds": 300, "responseStartTimeoutSeconds": 300} {
				seconds, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template", "spec", name)
				number, _ := seconds.(float64)
				limits = append(limits, time.Duration(cmp.Or(number, byDefault))*time.Second)
			}
		}
	}
	if len(limits) != 3 {
		t.Fatalf("found the limits %v, want those of a Trigger and of a Service", limits)
	}
	for _, limit := range limits {
		if limit < deliveryTimeout+statusTimeout {
			t.Errorf("a limit is %s, and a delivery lasts up to %s with its status", limit, deliveryTimeout+statusTimeout)
		}
	}
}

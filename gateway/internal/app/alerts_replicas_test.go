package app

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

// TestAlertsCountReplicasOnce evaluates the expressions of alerts and of the dashboard that count objects, while two gateways serve the
// same counts. Each object counts once.
func TestAlertsCountReplicasOnce(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(engine.Root(), "charts", "vitistack", "files")
	var tests strings.Builder
	tests.WriteString("tests:\n- name: replicas\n  interval: 1m\n  input_series:\n")
	for _, instance := range []string{"a", "b"} {
		for series, value := range map[string]int{
			`vitistack_operator_clusters_total{status="failed",type="talos",`:                       2,
			`vitistack_operator_clusters_total{status="failed",type="kubernetes",`:                  1,
			`vitistack_operator_machines_total{operator="kubevirt",status="running",cluster="a/b",`: 3,
			`vitistack_operator_machines_total{operator="kubevirt",status="running",cluster="a/c",`: 4,
			`vitistack_pipeline_waiting_objects{layer="machine",reason="Wait",`:                     5,
		} {
			fmt.Fprintf(&tests, "  - {series: '%sinstance=\"%s\"}', values: '%dx10'}\n", series, instance, value)
		}
	}
	tests.WriteString("  promql_expr_test:\n")
	for _, tc := range []struct {
		file, expression string
		samples          map[string]int
	}{
		{"alerts.yaml", `alert: VitistackClusterFailed\s+expr: (.*)`, map[string]int{`{type="talos"}`: 2, `{type="kubernetes"}`: 1}},
		{"dashboard.json", `"expr": (".*vitistack_operator_clusters_total.*"),`, map[string]int{`{status="failed"}`: 3}},
		{"dashboard.json", `"expr": (".*vitistack_operator_machines_total.*"),`, map[string]int{`{status="running"}`: 7}},
		{"dashboard.json", `"expr": (".*vitistack_pipeline_waiting_objects.*"),`, map[string]int{`{layer="machine",reason="Wait"}`: 5}},
	} {
		text, err := os.ReadFile(filepath.Join(folder, tc.file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(tc.expression).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", tc.file, tc.expression)
		}
		expression := string(found[1])
		if unquoted, err := strconv.Unquote(expression); err == nil {
			expression = unquoted
		}
		fmt.Fprintf(&tests, "  - expr: '%s'\n    eval_time: 5m\n    exp_samples:\n", expression)
		for labels, value := range tc.samples {
			fmt.Fprintf(&tests, "    - {labels: '%s', value: %d}\n", labels, value)
		}
	}
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, []byte(tests.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool, of Debian's package prometheus: %v\n%s", err, out)
	}
}

package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

// TestDashboardAndAlertsAskForMetricsThatExist looks each metric up in the gateway.
func TestDashboardAndAlertsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	paths, err := filepath.Glob(filepath.Join(engine.Root(), "gateway", "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	metric := regexp.MustCompile(`vitistack_[a-z_]+`)
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join(engine.Root(), "charts", "vitistack", "files", name))
		if err != nil {
			t.Fatal(err)
		}
		asked := metric.FindAllString(string(text), -1)
		if len(asked) == 0 {
			t.Errorf("%s asks for no metric", name)
		}
		for _, m := range asked {
			if !strings.Contains(source.String(), `"`+strings.TrimSuffix(m, "_bucket")+`"`) {
				t.Errorf("%s asks for %s, which the gateway does not have", name, m)
			}
		}
	}
}

package conformance

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/vitistack/stack/tests/stand/engine"
)

// TestDashboardAndAlertsAskForMetricsThatExist checks that the gateway, or resync, has each metric in
// the dashboard and the alerts.
func TestDashboardAndAlertsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	paths, err := filepath.Glob(filepath.Join(engine.Root(), "gateway", "internal", "metrics", "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	for _, path := range append(paths, filepath.Join(engine.Root(), "functions", "resync", "metrics.go")) {
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
			t.Errorf("%s queries no metric", name)
		}
		for _, m := range asked {
			if !strings.Contains(source.String(), `"`+strings.TrimSuffix(m, "_bucket")+`"`) {
				t.Errorf("%s queries %s, which neither the gateway nor resync has", name, m)
			}
		}
	}
}

// TestDashboardFitsGrafana reads the dashboard by the types that Grafana generates from its own schemas, which refuse unknown
// fields and values, also in the options of each kind of panel and in its queries.
func TestDashboardFitsGrafana(t *testing.T) {
	t.Parallel()
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "charts", "vitistack", "files", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard.Dashboard
	var problems cog.BuildErrors // an empty list is returned as an error too
	if err := d.UnmarshalJSONStrict(text); err != nil && (!errors.As(err, &problems) || len(problems) > 0) {
		t.Fatal(err)
	}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
}

var (
	// made matches a metric in the source, with labels or with its whole name.
	made = regexp.MustCompile(`^(?:(?:%s_operator|%s)?_)?([a-z]+(?:_[a-z]+)+)\{|^((?:kea_operator|vitistack_(?:operator|pipeline|network|function|resync|backend|etcd|heartbeat))(?:_[a-z]+)+)$`)
	// documentedMetrics matches a metric in a page by its suffix.
	documentedMetrics = regexp.MustCompile("`([a-z]+(?:_[a-z]+)*_(?:total|seconds|health))[`{]")
)

// gatewayMetrics returns the section about the gateway in the reference of metrics.
func gatewayMetrics(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## gateway\n")
	if !ok {
		t.Fatal("docs/reference/metrics.md has no section about the gateway")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// TestMetricsAreDocumented compares the metrics of the gateway and of each function with their pages,
// in both directions.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"gateway", "functions/provision-network", "functions/kea-reserve", "functions/create-vm", "functions/resync"} {
		readme, metrics := readPage(t, folder), map[string]bool{}
		page := readme
		if folder == "gateway" { // its README links to the reference, which is generated from what it serves
			page += gatewayMetrics(t)
		}
		for text := range sources(t, folder, "events").texts {
			if m := made.FindStringSubmatch(text); m != nil {
				metrics[m[1]+m[2]] = true
			}
		}
		for m := range metrics {
			if !strings.Contains(page, "`"+m+"`") && !strings.Contains(page, "`"+m+"{") && !strings.HasPrefix(m, "vitistack_function_") {
				t.Errorf("the pages of %s lack %s", folder, m)
			}
		}
		documented := documentedMetrics.FindAllStringSubmatch(readme, -1)
		if len(documented) == 0 {
			t.Errorf("%s/README.md has no metrics", folder)
		}
		for _, m := range documented {
			if !metrics[m[1]] {
				t.Errorf("%s/README.md has %s, which does not exist", folder, m[1])
			}
		}
	}
}

// readPage reads the README of a folder of the repository.
func readPage(t *testing.T, folder ...string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(append(append([]string{engine.Root()}, folder...), "README.md")...))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

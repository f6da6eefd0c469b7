package app

import (
	"strings"
	"testing"
)

// maxIdleSeries bounds what a gateway without requests serves. A histogram has a series for each of its ranges that was used.
const maxIdleSeries = 300

// TestIdleSeries counts the series of an idle gateway, and expects histograms of requests only for routes that were used.
func TestIdleSeries(t *testing.T) {
	t.Parallel()
	s := start(t)
	series := func() (all []string) {
		for _, line := range strings.Split(string(s.get("/metrics").body), "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				all = append(all, line)
			}
		}
		return all
	}
	series() // the first scrape is a request itself
	idle := series()
	if len(idle) >= maxIdleSeries {
		t.Errorf("an idle gateway serves %d series:\n%s", len(idle), strings.Join(idle, "\n"))
	}
	t.Logf("an idle gateway serves %d series", len(idle))
	if text := strings.Join(idle, "\n"); strings.Contains(text, `endpoint="/machines"`) {
		t.Errorf("the metrics have an unused route:\n%s", text)
	}
	s.get("/api/v1/machines")
	s.get("/api/v1/nothing-of-that-name")
	text := strings.Join(series(), "\n")
	if !strings.Contains(text, `endpoint="/machines"`) || strings.Contains(text, "nothing-of-that-name") {
		t.Errorf("the metrics lack the route that was used, or have one that does not exist:\n%s", text)
	}
}

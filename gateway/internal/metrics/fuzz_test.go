package metrics

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// FuzzTake takes anything for metrics that are pushed.
func FuzzTake(f *testing.F) {
	for _, text := range []string{
		"vitistack_function_deliveries_total{function=\"a\",outcome=\"done\",instance=\"x\"} 41\n", "vitistack_function_x_total 1e309\n", "vitistack_function_x_total{} -1\n",
		"vitistack_function_x_total{a=\"}\"} 1\n", "}\n", "vitistack_function_x_sum{instance=\"\",} NaN 1\n",
		"# TYPE kea_operator_up gauge\nkea_operator_up{b=\"\\\\\",a=\"\\n\"} -1\nvitistack_function_x_bucket{le=\"+Inf\"} 1\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := &Pushed{}
		now := time.Unix(1, 0)
		taken, err := p.Take(strings.NewReader(text), false, now)
		if err == nil && taken > strings.Count(text, "\n")+1 {
			t.Errorf("%d series of %q", taken, text)
		}
		_, _ = p.Take(strings.NewReader(text), true, now.Add(2*silence))
		for name, value := range p.sums() {
			if value < 0 {
				t.Errorf("%s is %v", name, value)
			}
		}
		var written bytes.Buffer
		p.Write(&written)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		if _, err := parser.TextToMetricFamilies(&written); err != nil {
			t.Errorf("%q became metrics that Prometheus does not read: %v", text, err)
		}
	})
}

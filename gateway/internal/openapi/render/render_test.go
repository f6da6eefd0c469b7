package render

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because, text string
		want          []run
	}{
		"Plain":  {"a text without backticks is one run", "a < b", []run{{"a < b", false}}},
		"Code":   {"what is in backticks is code", "sort by `-name`, or `a<b`", []run{{"sort by ", false}, {"-name", true}, {", or ", false}, {"a<b", true}}},
		"Broken": {"a single backtick begins nothing", "it`s", []run{{"it`s", false}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, prose(tc.text)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.because, diff)
			}
		})
	}
}

package setting_test

import (
	"testing"

	"github.com/vitistack/stack/events/setting"
)

func TestBool(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"true": true, "T": true, "1": true, "yes": true, "On": true, "FALSE": false, "f": false, "0": false, "no": false, "off": false} {
		if got, err := setting.Bool(text); err != nil || got != want {
			t.Errorf("%s is read as %t, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "yes please", " true", "2"} {
		if _, err := setting.Bool(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

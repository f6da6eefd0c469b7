package proxmox

import (
	"strings"
	"testing"
)

func TestTemplateNotFound(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		names  []string
		want   string
	}{
		{"the message names what exists", []string{"ubuntu (9001)", "debian (9000)"}, "no template nosuch: write an existing one (debian (9000), ubuntu (9001)), or the URL of an image, into spec.os.imageID"},
		{"there is nothing to name", nil, "no template nosuch: write the URL of an image into spec.os.imageID, or make the template"},
	} {
		if err := templateNotFound("nosuch", tc.names); !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
		}
	}
}

package conformance

import (
	"regexp"
	"strings"
	"testing"
)

// toldReasons are those that a page has after the status of their condition.
var toldReasons = regexp.MustCompile("(?:True|False) ((?:`[A-Za-z]+`(?:, | or | and )?)+)")

// TestReasonsAreDocumented holds the reasons that each function can write against its
// page, and the page against the code.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	network := "functions/internal/network"   // says why a network is not found
	secrets := "functions/internal/reconcile" // says that rights on Secrets are missing
	for name, shared := range map[string][]string{
		"provision-network": nil, "allocate-ip": {network}, "kea-reserve": {network}, "create-vm": {network, secrets}, "bootstrap-talos": {network, secrets}, "etcd-backup": {secrets},
	} {
		page := readPage(t, "functions", name)
		p := sources(t, append(shared, "functions/"+name, "functions/internal/kube")...)
		reasons := p.reasons()
		if len(reasons) < 10 {
			t.Errorf("only %d reasons were found in %s", len(reasons), name)
		}
		for reason := range reasons {
			if !strings.Contains(page, "`"+reason+"`") {
				t.Errorf("functions/%s/README.md does not tell of the reason %s", name, reason)
			}
		}
		for _, told := range toldReasons.FindAllStringSubmatch(page, -1) {
			for _, reason := range regexp.MustCompile("[A-Z][A-Za-z]+").FindAllString(told[1], -1) {
				if !p.texts[reason] {
					t.Errorf("functions/%s/README.md tells of the reason %s, which does not occur", name, reason)
				}
			}
		}
	}
}

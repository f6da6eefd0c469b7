package conformance

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/cause"
)

// documentedReasons matches the reasons of a page after the status of their condition.
var documentedReasons = regexp.MustCompile("(?:True|False) ((?:`[A-Za-z]+`(?:, | or | and )?)+)")

// decisions are the packages in which functions decide together with previews.
var decisions = map[string][]string{"provision-network": {"apis/segment", "apis/segment/plan"}, "create-vm": {"apis/machine/plan"}, "bootstrap-talos": {"apis/cluster/plan", "apis/cluster/addons", "apis/cluster/template"}}

// TestReasonsAreDocumented compares the reasons in the code of each function with its page, in both
// directions.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	network := "apis/network/plan"            // has the reasons for a network that is not found
	secrets := "functions/internal/reconcile" // has the reason for missing rights on Secrets
	versions := "apis/versions"               // has the reasons for versions that are not possible
	for name, shared := range map[string][]string{
		"provision-network": nil, "allocate-ip": {network}, "kea-reserve": {network}, "create-vm": {network, secrets}, "bootstrap-talos": {network, secrets, versions}, "etcd-backup": {secrets},
	} {
		page := readPage(t, "functions", name)
		p := sources(t, slices.Concat(shared, decisions[name], []string{"functions/" + name, "functions/internal/kube"})...)
		reasons := p.reasons()
		if len(reasons) < 10 {
			t.Errorf("only %d reasons were found in %s", len(reasons), name)
		}
		for reason := range reasons {
			if !strings.Contains(page, "`"+reason+"`") {
				t.Errorf("functions/%s/README.md lacks the reason %s", name, reason)
			}
		}
		for _, documented := range documentedReasons.FindAllStringSubmatch(page, -1) {
			for _, reason := range regexp.MustCompile("[A-Z][A-Za-z]+").FindAllString(documented[1], -1) {
				if !p.texts[reason] {
					t.Errorf("functions/%s/README.md has the reason %s, which does not exist", name, reason)
				}
			}
		}
	}
}

// TestReasonsHaveAdvice holds the reasons that each function can write against the advice that
// kubectl viti gives, and the advice against the code.
func TestReasonsHaveAdvice(t *testing.T) {
	t.Parallel()
	kinds := map[string][]string{
		"provision-network": {"NetworkNamespace"}, "allocate-ip": {"NetworkConfiguration", "IPAllocation"}, "kea-reserve": {"NetworkConfiguration"},
		"create-vm": {"Machine", "MachineProvider", "NetworkConfiguration"}, "bootstrap-talos": {"KubernetesCluster", "ClusterTemplate"}, "etcd-backup": {"EtcdBackup"},
	}
	shared := []string{"functions/internal/network", "functions/internal/reconcile", "functions/internal/kube", "functions/internal/orphans", "apis/versions", "apis/network/plan"}
	for name, kinds := range kinds {
		reasons := sources(t, slices.Concat(shared, decisions[name], []string{"functions/" + name})...).reasons()
		for reason := range reasons {
			if !slices.ContainsFunc(kinds, func(kind string) bool { return cause.IsKnown(kind, reason) }) {
				t.Errorf("apis/cause/reasons.go has no advice for the reason %s of %s: add whose turn it is, and the remedy", reason, name)
			}
		}
	}
	texts := sources(t, append(shared, "apis/v1alpha1", "apis/machine/plan", "apis/cluster/plan", "apis/cluster/addons", "apis/cluster/template", "apis/segment", "apis/segment/plan", "functions/provision-network", "functions/allocate-ip", "functions/kea-reserve",
		"functions/create-vm", "functions/bootstrap-talos", "functions/etcd-backup")...).texts
	for _, key := range cause.Reasons() {
		if reason := key[strings.LastIndexByte(key, '/')+1:]; !texts[reason] {
			t.Errorf("apis/cause/reasons.go has advice for the reason %s, which no function writes", key)
		}
	}
}

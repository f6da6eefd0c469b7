package kube

import (
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	t.Parallel()
	if got := Name("shop-cp-0", "eth0"); got != "shop-cp-0-eth0" {
		t.Errorf("short parts are joined unchanged: got %s", got)
	}
	long := strings.Repeat("a", 250)
	one, two := Name(long, "eth0"), Name(long, "eth1")
	if len(one) > maxName || one == two {
		t.Errorf("long parts must fit and stay different: got %s and %s", one, two)
	}
	if got := LabelValue(strings.Repeat("a", 45) + "-" + strings.Repeat("b", 40)); len(got) > maxLabel || strings.Contains(got, "--") {
		t.Errorf("a truncated name must not have two dashes: got %s", got)
	}
}

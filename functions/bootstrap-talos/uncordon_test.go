package main

import (
	"testing"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestRemovalDuringUpgradeIsTakenBack has a user annotate a machine whose node is cordoned for an upgrade, and remove the annotation before the
// replacement has joined. The node is upgraded, and schedulable after that.
func TestRemovalDuringUpgradeIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.newOutdatedCluster("shop", 1, 1)
	unblock := s.blockDrain()
	s.change("shop", talosTo("1.13.9"))
	s.awaitReason("shop", "Upgrading", "shop-pool-0", "pod default/db may not be moved")
	s.closed.Store(true) // the replacement gets no address
	s.annotate("shop-pool-0", v1alpha1.AnnotationRemove, "true")
	feed.Until(t, "the machine leaves the upgrade", func() (bool, string) {
		kc := s.get("shop")
		return !plan.IsNodeUpgrading(kc, "shop-pool-0"), kc.Status.Message
	})
	s.annotate("shop-pool-0", v1alpha1.AnnotationRemove, "false")
	unblock()
	s.awaitVersions("shop", "1.33.4", "1.13.9")
	s.requireSchedulable("shop")
}

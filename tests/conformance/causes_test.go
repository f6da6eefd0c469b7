package conformance

import (
	"maps"
	"testing"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/cause"
)

// TestOutagesAreOfBackends compares the reasons that count against the health of a backend with the
// source of the functions, and with the role that has to act. A reason that a requester resolves
// would make a backend unhealthy by a mistake in one spec.
func TestOutagesAreOfBackends(t *testing.T) {
	t.Parallel()
	written := map[string]bool{}
	for _, folder := range []string{"provision-network", "allocate-ip", "kea-reserve", "create-vm", "bootstrap-talos", "etcd-backup", "internal/network", "internal/reconcile"} {
		maps.Copy(written, sources(t, "functions/"+folder).reasons())
	}
	for _, reason := range backend.OutageReasons() {
		if !written[reason] {
			t.Errorf("apis/backend has the outage %s, which no function writes", reason)
		}
		if turn := cause.Advise("", reason).Owner; turn != cause.NetworkTeam && turn != cause.PlatformTeam {
			t.Errorf("apis/backend counts %s against a backend, although it is the turn of %s", reason, turn)
		}
	}
}

package hypervisor

import (
	"context"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// CheckRemoval reads a Machine that is being removed again. It returns an error for which kube.Conflict is true if the Machine has been
// protected or paused since it was read. Call it before each step that cannot be undone. A Machine that does not exist any more permits every
// step, because a late delivery removes what it has created.
func CheckRemoval(ctx context.Context, home *kube.Client, m *v1alpha1.Machine) error {
	now := &v1alpha1.Machine{}
	err := home.Get(ctx, m.Namespace, m.Name, now)
	switch {
	case kube.NotFound(err), err == nil && now.UID != m.UID:
		return nil
	case err != nil:
		return err
	case now.Spec.Protected || v1alpha1.IsPaused(now):
		return home.ConflictOf(m, "it has been protected or paused")
	}
	return nil
}

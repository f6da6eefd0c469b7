package cause

import "github.com/vitistack/stack/apis/backend"

// IsStalled reports whether an object of a kind that is not Ready for a reason stays so until
// a person corrects something. It is false while the stack continues by itself, also if it
// waits for a backend to answer again, or for an approval. IsStuck also counts waits that take too long.
func IsStalled(kind, reason string) bool {
	if health, outage := backend.OutageOf(reason); outage && health == backend.Unreachable || reason == "PendingApproval" {
		return false
	}
	return Advise(kind, reason).Owner != NoAction
}

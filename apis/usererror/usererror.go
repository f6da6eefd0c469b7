// Package usererror has the error for a mistake that only a user or the platform team can correct. The
// functions report it in conditions, and a preview before anything is applied.
package usererror

// Error is a problem that stays until a user or the platform team changes something. Redelivering the
// event does not help.
type Error struct {
	// Reason is one word in CamelCase, for a condition.
	Reason string
	// Message says what is wrong and what to change.
	Message string
}

func (e Error) Error() string { return e.Reason + ": " + e.Message }

// Retried returns false: the change that corrects the mistake causes an event of its own.
func (e Error) Retried() bool { return false }

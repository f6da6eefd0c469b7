package cause

// resumes are reasons that name a role that has to act, and that end without a change of any object
// of the stack: the backend answers again, or a decision arrives as an event.
var resumes = map[string]bool{
	"KeaUnavailable":      true,
	"PendingApproval":     true,
	"ProviderUnavailable": true,
	"SourceUnavailable":   true,
	"Unreachable":         true,
}

// IsStalled reports whether an object of a kind that is not Ready for a reason stays so until
// somebody corrects something. It is false while the stack continues by itself, also if that takes
// a backend that answers again, or an approval.
func IsStalled(kind, reason string) bool {
	return Advise(kind, reason).Turn != Nobody && !resumes[reason]
}

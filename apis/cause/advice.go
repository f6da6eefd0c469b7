package cause

import (
	"maps"
	"slices"
	"strings"
)

// Role is a group of people who may have to act.
type Role string

// The roles. NoAction means that the stack continues without an action.
const (
	NoAction     Role = "no action"
	Requester    Role = "requester"
	NetworkTeam  Role = "network team"
	PlatformTeam Role = "platform team"
)

// Advice says what the reason of a condition means for a reader.
type Advice struct {
	// Owner is the role that has to act.
	Owner Role
	// Remedy says what the role does. The message of the condition has the particulars.
	Remedy string
	// in are the kinds of the objects that an object with the reason waits for. The cause is
	// looked for in them.
	in []string
}

// WaitsFor returns the kinds of the objects that an object with the reason waits for.
func (a Advice) WaitsFor() []string { return slices.Clone(a.in) }

// Advise returns the advice for an object of a kind, by the reason of its condition. An empty
// reason is that of an object that no function has reconciled. An unknown reason is one of a later
// version of a function, or of a network one that its IPAM has chosen; its message says what to do.
func Advise(kind, reason string) Advice {
	if advice, ok := advices[kind+"/"+reason]; ok {
		return advice
	}
	if advice, ok := advices[reason]; ok {
		return advice
	}
	if kind == kindNetwork {
		return Advice{Owner: NetworkTeam, Remedy: "Follow the message of the provider of networks."}
	}
	return Advice{Owner: PlatformTeam, Remedy: "Follow the message. This version of the program does not know the reason " + reason + "."}
}

// AdviseOverdue returns the advice for an object of a kind that has waited for longer than MaxWait, although
// its reason needs no action.
func AdviseOverdue(kind string) Advice {
	if kind == kindNetwork {
		return Advice{Owner: NetworkTeam, Remedy: "This lasts longer than expected. Check that the provider of networks that the message names has the request, and answers it. Otherwise, the requester names another provider in spec.networkProvisioning."}
	}
	return Advice{Owner: PlatformTeam, Remedy: "This lasts longer than expected. Check what the message names, and the log of the function that reconciles this kind (docs/debug.md)."}
}

// IsKnown reports whether there is advice for the reason of an object of a kind.
func IsKnown(kind, reason string) bool {
	_, ofKind := advices[kind+"/"+reason]
	_, ofAll := advices[reason]
	return ofKind || ofAll
}

// Reasons returns every reason with advice, as the reason or as kind/reason, in alphabetical order.
// It leaves out the empty reason.
func Reasons() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(advices)), func(reason string) bool { return reason == "" })
}

// ConditionsPage is the address of the page with a section for each reason.
const ConditionsPage = "https://github.com/vitistack/stack/blob/main/docs/reference/conditions.md"

// PageOf returns the address of the section about a reason, and nothing for a reason without advice.
func PageOf(kind, reason string) string {
	if reason == "" || !IsKnown(kind, reason) {
		return ""
	}
	return ConditionsPage + "#" + strings.ToLower(reason)
}

// Kinds of the stack.
const (
	kindCluster       = "KubernetesCluster"
	kindMachine       = "Machine"
	kindProvider      = "MachineProvider"
	kindConfiguration = "NetworkConfiguration"
	kindAllocation    = "IPAllocation"
	kindNetwork       = "NetworkNamespace"
	kindBackup        = "EtcdBackup"
	kindTemplate      = "ClusterTemplate"
)

package talos

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Patch is a change of configurations that somebody has written.
type Patch struct {
	// from says where it is, for people.
	from string
	configpatcher.Patch
}

// ReadPatch reads what somebody has written. A document that would become many times
// as large is refused by the YAML library.
func ReadPatch(from string, text []byte) (Patch, error) {
	loaded, err := configpatcher.LoadPatch(text)
	if err != nil {
		return Patch{}, reconcile.UserError{Reason: "InvalidPatch", Message: fmt.Sprintf("%s is no patch of a machine configuration: %v", from, err)}
	}
	if _, merges := loaded.(configpatcher.StrategicMergePatch); !merges {
		return Patch{}, reconcile.UserError{Reason: "InvalidPatch", Message: from + " is a JSON patch, which a configuration of several documents cannot take: write the fields to change as YAML"}
	}
	return Patch{from: from, Patch: loaded}, nil
}

// apply changes a configuration as somebody wrote, and refuses what would make a
// node another one: its role, its cluster or its name.
func (p Patch) apply(before config.Provider, hostname string) (config.Provider, error) {
	out, err := configpatcher.Apply(configpatcher.WithConfig(before), []configpatcher.Patch{p.Patch})
	if err != nil {
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: fmt.Sprintf("%s cannot be applied: %v", p.from, err)}
	}
	after, err := out.Config()
	if err != nil {
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: fmt.Sprintf("%s cannot be applied: %v", p.from, err)}
	}
	named := after.NetworkHostnameConfig()
	switch {
	case after.Machine() == nil || after.Cluster() == nil || after.Machine().Type() != before.Machine().Type():
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: p.from + " changes machine.type, which the pool determines: take it out"}
	case after.Machine().Security().Token() != before.Machine().Security().Token(), after.Cluster().ID() != before.Cluster().ID():
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: p.from + " changes the keys of the cluster, which would cut the node off: take them out"}
	case named == nil || named.Hostname() != hostname:
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: p.from + " changes the host name, by which the node is known: take it out"}
	}
	return after, nil
}

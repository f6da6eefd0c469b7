package main

import (
	"errors"
	"slices"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// report is what phases have found, for the status.
type report struct {
	// userErrors are the user errors that do not stop the delivery, in the order of their discovery.
	userErrors []conditionError
	// template is the UserError about the ClusterTemplate of the cluster, nil for none. The cluster then follows
	// its last valid spec, because its present spec may lack fields.
	template error
	// approval is the error that keeps the cluster at its approved topology, nil for none.
	approval error
	// machinesCreated, keysCreated and bootstrapped are how far the cluster has come.
	machinesCreated, keysCreated, bootstrapped bool
	// bootstrapSent is whether this delivery has sent a bootstrap request.
	bootstrapSent bool
	// nodeEventFollows is whether the cluster continues by the event of a node.
	nodeEventFollows bool
	// apiUnanswered is whether the workload API has not answered, or cannot be asked.
	apiUnanswered bool
	// unreachable is whether the workload API of a cluster that has been running does not answer.
	unreachable bool
	// etcd counts the members of etcd once all of them vote and answer. It is empty before.
	etcd string
	// versions, config and authorities are the conditions VersionsCurrent, ConfigCurrent and
	// AuthoritiesRotated.
	versions, config, authorities conditionReport
	// health is the condition MachinesHealthy.
	health conditionReport
	// addons is the condition AddonsApplied, and addonsDone the add-ons that this delivery does not try
	// again, by name. addonsWaiting is what the others wait for.
	addons        conditionReport
	addonsDone    map[string]bool
	addonsWaiting error
	// upgradeBlocker is why no other node may be upgraded now.
	upgradeBlocker string
	// resizeBlocker is why no other machine may be resized now.
	resizeBlocker string
}

// conditionReport is what a condition says. It is empty if a delivery has found out nothing.
type conditionReport struct {
	current         bool
	reason, message string
}

// conditionError is a UserError that does not keep a cluster with nodes from being observed and
// repaired. Only its condition and Ready report it.
type conditionError struct {
	condition string
	reconcile.UserError
}

// noteUserError keeps a UserError for its condition, so that the delivery continues. It reports
// whether err is one.
func (r *report) noteUserError(condition string, err error) bool {
	var problem reconcile.UserError
	if !errors.As(err, &problem) {
		return false
	}
	if _, noted := r.userErrorOf(condition); !noted {
		r.userErrors = append(r.userErrors, conditionError{condition, problem})
	}
	return true
}

// userErrorOf returns the UserError that a condition reports.
func (r *report) userErrorOf(condition string) (reconcile.UserError, bool) {
	i := slices.IndexFunc(r.userErrors, func(f conditionError) bool { return f.condition == condition })
	if i < 0 {
		return reconcile.UserError{}, false
	}
	return r.userErrors[i].UserError, true
}

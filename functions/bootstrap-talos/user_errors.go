package main

import (
	"errors"
	"slices"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

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

// tolerateUserError keeps a UserError of a cluster that has nodes. Other errors are returned.
func (c *cluster) tolerateUserError(condition string, err error) error {
	if err != nil && c.observed.hasNodes() && c.report.noteUserError(condition, err) {
		return nil
	}
	return err
}

// userErrorOf returns the UserError that a condition reports.
func (r *report) userErrorOf(condition string) (reconcile.UserError, bool) {
	i := slices.IndexFunc(r.userErrors, func(f conditionError) bool { return f.condition == condition })
	if i < 0 {
		return reconcile.UserError{}, false
	}
	return r.userErrors[i].UserError, true
}

package main

import (
	"errors"
	"slices"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// noteUserError keeps a UserError for its condition, so that the delivery continues. It reports
// whether err is one.
func (c *cluster) noteUserError(condition string, err error) bool {
	var problem reconcile.UserError
	if !errors.As(err, &problem) {
		return false
	}
	if _, noted := c.userErrorOf(condition); !noted {
		c.report.userErrors = append(c.report.userErrors, conditionError{condition, problem})
	}
	return true
}

// tolerateUserError keeps a UserError of a cluster that has nodes. Other errors are returned.
func (c *cluster) tolerateUserError(condition string, err error) error {
	if err != nil && c.hasNodes() && c.noteUserError(condition, err) {
		return nil
	}
	return err
}

// userErrorOf returns the UserError that a condition reports.
func (c *cluster) userErrorOf(condition string) (reconcile.UserError, bool) {
	i := slices.IndexFunc(c.report.userErrors, func(f conditionError) bool { return f.condition == condition })
	if i < 0 {
		return reconcile.UserError{}, false
	}
	return c.report.userErrors[i].UserError, true
}

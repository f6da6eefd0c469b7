package app

import (
	"log/slog"
)

// component returns the log of a component.
func (a *app) component(name string) *slog.Logger { return a.log.With("component", name) }

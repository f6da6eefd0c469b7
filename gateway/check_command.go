package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/app"
	"github.com/vitistack/stack/gateway/internal/config"
)

// check reads the settings as the gateway does at its start, with the files that they name, and connects to nothing. The first setting that
// the gateway would not start with is an error that names it.
func check(args []string, lookup func(string) (string, bool), out io.Writer) error {
	c, err := config.Load(args, lookup, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err == nil {
		err = app.Check(version, c, events.NewLogger(out, c.LogLevel))
	}
	if err == nil {
		_, err = fmt.Fprintln(out, "The gateway starts with these settings.")
	}
	return err
}

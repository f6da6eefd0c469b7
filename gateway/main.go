// The gateway serves the state of the stack: it watches the Kubernetes API and offers a REST API, a stream of events, a status page
// and metrics. It also receives events of external systems and sends webhooks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/app"
	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/config"
)

// version is set by the linker for a release.
var version = "dev"

// commands are the commands beside serving.
var commands = map[string]func(args []string) error{
	"hash-key": func(args []string) error { return auth.HashKey(args, pipedInput(os.Stdin), os.Stdout) },
	"get": func(args []string) error {
		ctx, stop := context.WithTimeout(context.Background(), getTimeout)
		defer stop()
		return get(ctx, args, os.LookupEnv, os.Stdout)
	},
	"check": func(args []string) error { return check(args, os.LookupEnv, os.Stdout) },
}

func main() {
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		if err := commands[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	c, err := config.Load(os.Args[1:], os.LookupEnv, os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	log := events.NewLogger(os.Stderr, "info")
	if err == nil {
		log = events.NewLogger(os.Stderr, c.LogLevel)
		err = app.Run(ctx, version, c, log)
	}
	if err != nil {
		log.Error("Cannot run", "component", "gateway", "error", err.Error())
		os.Exit(1)
	}
}

// pipedInput returns what is piped into a file, or nothing if the file is a terminal.
func pipedInput(f *os.File) io.Reader {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 {
		return strings.NewReader("")
	}
	return f
}

// The gateway shows the stack: it watches the Kubernetes API and serves what it
// sees as a REST API, a stream of events, a status page and metrics.
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
	"github.com/vitistack/stack/gateway/internal/config"
)

// version is set by the linker for a release.
var version = "dev"

// commands are what the program does instead of serving.
var commands = map[string]func(args []string) error{
	"hash-key": func(args []string) error { return hashKey(args, typed(os.Stdin), os.Stdout) },
	"get": func(args []string) error {
		ctx, stop := context.WithTimeout(context.Background(), getTimeout)
		defer stop()
		return get(ctx, args, beside(os.Getenv), os.Stdout)
	},
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
		err = run(ctx, c, log)
	}
	if err != nil {
		log.Error("Cannot run", "component", "gateway", "error", err.Error())
		os.Exit(1)
	}
}

// typed is what is piped into a file, and nothing where that is a terminal.
func typed(f *os.File) io.Reader {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 {
		return strings.NewReader("")
	}
	return f
}

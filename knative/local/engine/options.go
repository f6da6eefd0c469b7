package engine

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options are the flags of `viti-local up`.
type Options struct {
	Root          string // of the repository
	State         string
	Bin           string
	APIServerPort int
	GatewayPort   int
	Idle          time.Duration
	Processes     int
	Concurrency   int // 0 for containerConcurrency
	Extra         []extraProcess
	Await         []string // names of processes in Extra
	CRDs          []string // additional directories
	Apply         []string // files
	Build         string   // command, or empty
	Config        map[string]string
	PingEvery     time.Duration
	Unbound       bool
	Ingress       *url.URL
	APIServer     *url.URL
	Audit         bool
	OIDC          bool
	ServerFlags   []string // additional flags of kube-apiserver

	// Self is the program with the components, which is this one.
	Self string
	// Out receives the output for the user.
	Out io.Writer
}

// extraProcess is a process of --process.
type extraProcess struct{ name, command string }

const usage = `viti-local up: run the whole stack on this machine, with a real Kubernetes API server, etcd and Knative event source.

It reads apis/crds/*.yaml and knative/*.yaml below --root, starts what they describe as processes, and stays in the
foreground; Ctrl-C stops everything. Its state is in --state: remove that directory to start from scratch.

Usage: viti-local up [flags]

`

// ParseOptions parses the command line. It prints the help to out and returns flag.ErrHelp on request.
func ParseOptions(args []string, out io.Writer) (Options, error) {
	o := Options{Out: out, Config: map[string]string{}}
	flags := flag.NewFlagSet("viti-local up", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error
	flags.Usage = func() {}
	flags.StringVar(&o.Root, "root", ".", "`directory` of the repository")
	flags.StringVar(&o.State, "state", ".run", "`directory` of the state: data, keys, kubeconfig, logs")
	flags.StringVar(&o.Bin, "bin", "bin", "`directory` of the binaries, each named like the last element of its ko:// image")
	flags.IntVar(&o.APIServerPort, "apiserver-port", 0, "`port` of the Kubernetes API; 0 takes the one of the last run, or a free one")
	flags.IntVar(&o.GatewayPort, "gateway-port", 9991, "`port` of the gateway (REST, status page, metrics); 0 takes a free one")
	flags.DurationVar(&o.Idle, "idle", 15*time.Second, "stop a function's process after this `time` without requests")
	flags.IntVar(&o.Processes, "processes", 1, "most `processes` of a function; another is started when all have containerConcurrency requests")
	flags.IntVar(&o.Concurrency, "concurrency", 0, "most `requests` in a process at once, where containerConcurrency allows more; 0 leaves it at that")
	flags.Func("process", "`name=command`: run this too, with KUBECONFIG set to an administrator's; the shell splits the command. What it writes to the file that NOTES names, as lines of two columns, is shown at the start (repeatable)", o.addProcess)
	flags.Func("await", "`name` of a --process: the stack is ready once it has made the file that READY names (repeatable)", list(&o.Await))
	flags.Func("crds", "`directory` of more CRDs to install before everything else (repeatable)", list(&o.CRDs))
	flags.Func("apply", "`file` of objects to apply once all is ready (repeatable)", list(&o.Apply))
	flags.StringVar(&o.Build, "build", "", "`command` that builds the binaries of Deployments, once all else is ready; they start after it. The shell splits it, in the directory of --root")
	flags.Func("config", "`KEY=VALUE` for the ConfigMap vitistack-config, which every function and the gateway read (repeatable)", o.addConfig)
	flags.DurationVar(&o.PingEvery, "ping-every", 0, "fire each PingSource at this `interval` instead of by its schedule")
	flags.Func("ingress", "`URL` that the ApiServerSource and the subjects of SinkBindings send to instead of the Broker, for tests that put a proxy in between", setURL(&o.Ingress))
	flags.Func("apiserver", "`URL` of the API server that functions and Deployments are given instead of the engine's own, with the same authority, for tests that put a proxy in between", setURL(&o.APIServer))
	flags.Func("apiserver-flag", "one more `flag` of kube-apiserver, with its dashes (repeatable)", list(&o.ServerFlags))
	flags.BoolVar(&o.Unbound, "without-sink-bindings", false, "leave K_SINK empty, as Knative does in a revision that starts before its SinkBinding is applied")
	flags.BoolVar(&o.OIDC, "oidc", false, "have deliveries carry the token of their Trigger, as Knative does with authentication-oidc, and functions and gateway verify it")
	flags.BoolVar(&o.Audit, "audit", false, "log each request to the API server to logs/audit.log")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			_, _ = fmt.Fprint(out, usage)
			flags.SetOutput(out)
			flags.PrintDefaults()
			return Options{}, err
		}
		return Options{}, fmt.Errorf("read the command line: %w; see viti-local up --help", err)
	}
	if flags.NArg() > 0 {
		return Options{}, fmt.Errorf("read the command line: %q is no flag; see viti-local up --help", flags.Arg(0))
	}
	if o.OIDC {
		o.Config["OIDC_ENABLED"] = "true"
	}
	if o.Processes < 1 || o.Idle <= 0 || o.Concurrency < 0 || o.PingEvery < 0 {
		return Options{}, errors.New("read the command line: --processes and --idle must be positive, --concurrency and --ping-every must not be negative")
	}
	for _, name := range o.Await {
		if !slices.ContainsFunc(o.Extra, func(e extraProcess) bool { return e.name == name }) {
			return Options{}, fmt.Errorf("read the command line: --await %s names no --process", name)
		}
	}
	return o.complete()
}

// complete makes paths absolute, because processes have working directories of their own.
func (o Options) complete() (Options, error) {
	var err error
	for _, path := range []*string{&o.Root, &o.State, &o.Bin} {
		if *path, err = filepath.Abs(*path); err != nil {
			return Options{}, fmt.Errorf("find %s: %w", *path, err)
		}
	}
	if o.Self, err = os.Executable(); err != nil {
		return Options{}, fmt.Errorf("find this program: %w", err)
	}
	return o, nil
}

func (o *Options) addProcess(text string) error {
	name, command, ok := strings.Cut(text, "=")
	if !ok || name == "" || command == "" || strings.ContainsAny(name, "/ ") {
		return errors.New("write name=command")
	}
	o.Extra = append(o.Extra, extraProcess{name, command})
	return nil
}

func (o *Options) addConfig(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return errors.New("write KEY=VALUE")
	}
	o.Config[key] = value
	return nil
}

// setURL parses a URL with scheme and host.
func setURL(to **url.URL) func(string) error {
	return func(text string) error {
		u, err := url.Parse(text)
		if err != nil {
			return err
		}
		if u.Scheme == "" || u.Host == "" {
			return errors.New("write a whole URL, such as http://127.0.0.1:8080/")
		}
		*to = u
		return nil
	}
}

func list(values *[]string) func(string) error {
	return func(text string) error {
		*values = append(*values, text)
		return nil
	}
}

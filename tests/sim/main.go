// Sim simulates a data centre for the stack on one machine: a KubeVirt cluster and a Proxmox VE
// cluster whose machines run Talos Linux if they boot an image of it, a Network Automation Manager,
// NetBox, an IPAM that answers events, and ISC Kea if the real one is not installed. Each simulator
// speaks the wire protocol of the real product, and has faults on request.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/sim/kubevirt/controller"
	"github.com/vitistack/stack/tests/sim/kubevirt/judge"
	"github.com/vitistack/stack/tests/sim/talos"
)

func main() {
	state := flag.String("state", ".run/sim", "`folder` that keeps the disks of simulated machines")
	control := flag.String("control", "127.0.0.1:0", "`address` at which PUT /faults/kubevirt, proxmox, talos, nam, netbox and kea take rules, GET /calls/ of these counts what they were asked for, GET /ready answers 204 once all simulators serve, PUT /timing sets the durations of the steps of nodes, and PUT /crash names the addresses of nodes that crash; what is listened on is written to <state>/control")
	var kubevirts programs
	flag.StringVar(&kubevirts.judge, "judge", "", "`program` of tests/judges/kubevirt, which also has to allow each virtual machine")
	listen := flag.String("listen", loopbackAddress, "`IP` at which functions reach the simulators. With another than "+loopbackAddress+
		", for functions in pods, Kea is always simulated, and only networks outside of 127.0.0.0/8 can be reached")
	flag.StringVar(&kubevirts.controller, "virt-controller", os.Getenv("VITI_VIRT_CONTROLLER"), "`program` of tests/judges/kubevirt/controller, "+
		"which is KubeVirt's own virt-controller. VITI_VIRT_CONTROLLER sets the default")
	flag.StringVar(&kubevirts.guests, "guests", os.Getenv("VITI_GUESTS"), "`program` that runs the guests of KubeVirt in place of simulated nodes, see command.go; "+
		"functions then connect to them directly. VITI_GUESTS sets the default")
	flag.StringVar(&kubevirts.namespace, "kubevirt-namespace", os.Getenv("VITI_KUBEVIRT_NAMESPACE"), "the only `namespace` in which KubeVirt runs virtual machines, and "+
		"all if it is empty. VITI_KUBEVIRT_NAMESPACE sets the default")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "Plays KubeVirt, Proxmox VE, Talos Linux, where networks come from and Kea for the API server that KUBECONFIG names.")
		flag.PrintDefaults()
	}
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, site{state: *state, ip: *listen}, *control, kubevirts, log); err != nil {
		log.Error("Cannot go on", "error", err)
		os.Exit(1)
	}
}

// programs are parts of KubeVirt that run in programs of their own, and the only namespace of all parts. An empty path leaves
// the part to the simulator.
type programs struct{ judge, controller, guests, namespace string }

func run(ctx context.Context, at site, control string, real programs, log *slog.Logger) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("find the API server: %w (set KUBECONFIG)", err)
	}
	config.QPS = -1
	machines, others, nodes, managers, libraries, dhcp := &faults.Plan{}, &faults.Plan{}, &faults.Plan{}, &faults.Plan{}, &faults.Plan{}, &faults.Plan{}
	switches := map[string]http.Handler{}
	for name, plan := range map[string]*faults.Plan{
		"kubevirt": machines, "proxmox": others, "talos": nodes, "nam": managers, "netbox": libraries, "kea": dhcp,
	} {
		switches["/faults/"+name], switches["/calls/"+name] = plan, http.HandlerFunc(plan.ServeCalls)
	}
	crash, started, pace := &crashes{}, &ready{log: log}, &timing{}
	switches["/crash"], switches["/ready"], switches["/timing"] = crash, started, pace
	if err := serveControl(ctx, at.state, control, switches); err != nil {
		return err
	}
	if err := serveNetworks(ctx, config, at, managers, libraries, log); err != nil {
		return err
	}
	leases, err := serveKea(ctx, config, at, dhcp, log.With("simulator", "kea"))
	if err != nil {
		return err
	}
	router, err := newRelay(config, leases)
	if err != nil {
		return err
	}
	if real.guests == "" {
		if err := serveGateway(ctx, config, at); err != nil {
			return err
		}
	}
	fleet, err := talos.Open(filepath.Join(at.state, "talos"), nodes, log.With("simulator", "talos"))
	if err != nil {
		return err
	}
	crash.fleet.Store(fleet)
	pace.fleet.Store(fleet)
	inside := guests{fleet: fleet}
	cluster, err := serveProxmox(ctx, config, at, others, inside, router, log.With("simulator", "proxmox"))
	if err != nil {
		return errors.Join(err, fleet.Close())
	}
	judges, err := startJudge(real.judge)
	if err != nil {
		return errors.Join(err, cluster.Close(), fleet.Close())
	}
	options := kubevirt.Options{Namespace: real.namespace, Judge: judges, Plan: machines, Log: log.With("simulator", "kubevirt"), Guests: inside, DHCP: router.onAttachment, Ready: started.report}
	if real.guests != "" {
		options.Guests = commandGuests{program: real.guests}
	}
	if real.controller != "" {
		if err := useController(ctx, config, real.controller, at.state, &options); err != nil {
			return errors.Join(err, cluster.Close(), fleet.Close())
		}
	}
	hypervisors := kubevirt.New(config, options)
	return errors.Join(hypervisors.Run(ctx), cluster.Close(), fleet.Close())
}

// useController installs the definitions of the real virt-controller, and has it start once the simulator is ready.
func useController(ctx context.Context, config *rest.Config, program, folder string, options *kubevirt.Options) error {
	if err := controller.Install(ctx, config, program); err != nil {
		return err
	}
	options.RealController = true
	isReady := options.Ready
	options.Ready = func() {
		stop, err := controller.Start(config, program, folder)
		if err != nil {
			options.Log.Error("Cannot start virt-controller", "error", err)
			return
		}
		context.AfterFunc(ctx, stop)
		isReady()
	}
	return nil
}

// ready says whether all simulators serve.
type ready struct {
	log    *slog.Logger
	serves atomic.Bool
}

// ServeHTTP answers 204 if all simulators serve, and 503 before.
func (r *ready) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !r.serves.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// report makes the file in READY, for which the program that started this one waits.
func (r *ready) report() {
	r.serves.Store(true)
	path := os.Getenv("READY")
	if path == "" {
		return
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		r.log.Error("Cannot report readiness", "error", err)
	}
}

// serveControl serves the fault plans and switches of the simulators, and writes their address into a
// file.
func serveControl(ctx context.Context, state, address string, switches map[string]http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve the faults: %w", err)
	}
	mux := http.NewServeMux()
	for path, handler := range switches {
		mux.Handle(path, handler)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := os.MkdirAll(state, 0o700); err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	if err := os.WriteFile(filepath.Join(state, "control"), []byte("http://"+listener.Addr().String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("keep the state: %w", err)
	}
	return nil
}

// startJudge returns nil if there is no program.
func startJudge(program string) (*judge.Judge, error) {
	if program == "" {
		return nil, nil
	}
	return judge.Start(program)
}

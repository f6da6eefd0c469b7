package talos_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/loopback"
	"github.com/vitistack/stack/tests/sim/talos"
)

// patience bounds each wait of a test.
const patience = 40 * time.Second

// rack is a fleet with a cluster's secrets and clients for its machines.
type rack struct {
	t      testing.TB
	fleet  *talos.Fleet
	plan   *faults.Plan
	net    *loopback.Range
	dir    string
	timing talos.Timing
	// version is the version of machines and configurations.
	version string
	bundle  *secrets.Bundle
	ids     map[int]string
	off     chan string
}

func newRack(t testing.TB, version string, timing talos.Timing) *rack {
	t.Helper()
	net, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = net.Close() })
	r := &rack{
		t: t, plan: &faults.Plan{}, net: net, dir: t.TempDir(), timing: timing, version: version,
		ids: map[int]string{}, off: make(chan string, 10),
	}
	r.bundle = r.secrets(ourSecrets)
	r.open()
	return r
}

// newSecrets generates a cluster's secrets once, because that takes a second.
func newSecrets() func() (*secrets.Bundle, error) {
	return sync.OnceValues(func() (*secrets.Bundle, error) {
		return secrets.NewBundle(secrets.NewClock(), config.TalosVersion1_11)
	})
}

// The secrets of the racks' cluster and of another one. Racks may share them, because fleets are
// independent.
var ourSecrets, foreignSecrets = newSecrets(), newSecrets()

func (r *rack) secrets(of func() (*secrets.Bundle, error)) *secrets.Bundle {
	r.t.Helper()
	bundle, err := of()
	if err != nil {
		r.t.Fatal(err)
	}
	return bundle
}

func (r *rack) foreign() *secrets.Bundle { return r.secrets(foreignSecrets) }

func (r *rack) contract() *config.VersionContract {
	c, err := config.ParseContractFromVersion(r.version)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// open starts the fleet from its directory.
func (r *rack) open() {
	r.t.Helper()
	f, err := talos.Open(r.dir, r.plan, slog.New(slog.DiscardHandler),
		talos.WithTiming(r.timing), talos.WithShutdownObserver(func(id string) { r.off <- id }))
	if err != nil {
		r.t.Fatal(err)
	}
	r.fleet = f
	r.t.Cleanup(func() { _ = f.Close() })
}

// machine returns the n-th machine of the rack.
func (r *rack) machine(n int) talos.Machine {
	if r.ids[n] == "" {
		r.ids[n] = uuid.NewString()
	}
	return talos.Machine{
		ID: r.ids[n], Links: []talos.Link{{Name: "eth0", MAC: fmt.Sprintf("02:00:00:00:00:%02x", n)}},
		Address: r.net.Address(n), Version: r.version, Kind: "metal",
		Disks: []talos.Disk{{Device: "/dev/vda", Size: 20 << 30}, {Device: "/dev/vdb", Size: 10 << 30}},
	}
}

func (r *rack) addr(n int) string { return r.net.Address(n).Addr().String() }

func (r *rack) powerOn(numbers ...int) {
	r.t.Helper()
	for _, n := range numbers {
		if err := r.fleet.PowerOn(r.t.Context(), r.machine(n)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// config returns a machine configuration of the rack's cluster, whose endpoint is the second address.
func (r *rack) config(kind machine.Type, patches ...string) []byte {
	r.t.Helper()
	return r.configFrom(r.bundle, kind, patches...)
}

func (r *rack) configFrom(bundle *secrets.Bundle, kind machine.Type, patches ...string) []byte {
	r.t.Helper()
	in, err := generate.NewInput("sim", "https://"+r.addr(2)+":6443", "1.34.1",
		generate.WithSecretsBundle(bundle), generate.WithVersionContract(r.contract()),
		generate.WithInstallDisk("/dev/vda"), generate.WithInstallImage("ghcr.io/siderolabs/installer:"+r.version))
	if err != nil {
		r.t.Fatal(err)
	}
	cfg, err := in.Config(kind)
	if err != nil {
		r.t.Fatal(err)
	}
	loaded, err := configpatcher.LoadPatches(patches)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), loaded)
	if err != nil {
		r.t.Fatal(err)
	}
	data, err := out.Bytes()
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// dial returns a client with short delays between attempts.
func (r *rack) dial(options ...client.OptionFunc) *client.Client {
	r.t.Helper()
	quick := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond}
	c, err := client.New(r.t.Context(), append(options, client.WithGRPCDialOptions(
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: patience})))...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// insecure returns a client that trusts every server, for the maintenance mode.
func (r *rack) insecure(n int) *client.Client {
	r.t.Helper()
	return r.dial(client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}), client.WithEndpoints(r.addr(n)))
}

// client returns a client of one of the cluster's administrators, or with the given roles.
func (r *rack) client(n int, roles ...role.Role) *client.Client {
	r.t.Helper()
	return r.clientOf(r.bundle, n, roles...)
}

func (r *rack) clientOf(bundle *secrets.Bundle, n int, roles ...role.Role) *client.Client {
	r.t.Helper()
	if len(roles) == 0 {
		roles = []role.Role{role.Admin}
	}
	cert, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(roles...))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.dial(client.WithConfig(clientconfig.NewConfig("sim", []string{r.addr(n)}, bundle.Certs.OS.Crt, cert)))
}

// eventually waits for a condition.
func (r *rack) eventually(what string, holds func(ctx context.Context) error) {
	r.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(r.t.Context(), 2*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, patience/4)
		defer cancel()
		last = holds(ctx)
		return last == nil, nil
	})
	if err != nil {
		r.t.Fatalf("timed out waiting until %s: %v", what, last)
	}
}

// apply applies the configuration of the n-th machine, which is in maintenance.
func (r *rack) apply(n int, data []byte) {
	r.t.Helper()
	c := r.insecure(n)
	r.eventually("the configuration is applied", func(ctx context.Context) error {
		_, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: data, Mode: machineapi.ApplyConfigurationRequest_AUTO})
		return err
	})
}

// up waits until the n-th machine answers administrators.
func (r *rack) up(n int) *client.Client {
	r.t.Helper()
	c := r.client(n)
	r.eventually(fmt.Sprintf("machine %d is up", n), func(ctx context.Context) error {
		_, err := c.Version(ctx)
		return err
	})
	return c
}

// hostname returns a patch with a machine's name in the version's dialect.
func (r *rack) hostname(name string) string {
	if r.contract().Greater(config.TalosVersion1_11) {
		return "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: " + name + "\nauto: off\n"
	}
	return "machine:\n  network:\n    hostname: " + name + "\n"
}

// cluster starts control planes 2, 3, ... and the workers after them, and waits until every node is Ready and every
// machine's API answers. A worker's node may be Ready earlier than its API, whose certificate a control plane signs.
func (r *rack) cluster(planes, workers int) *client.Client {
	r.t.Helper()
	for i := range planes + workers {
		n := i + 2
		r.powerOn(n)
		if i < planes {
			r.apply(n, r.config(machine.TypeControlPlane, r.hostname(fmt.Sprintf("cp-%d", n))))
		} else {
			r.apply(n, r.config(machine.TypeWorker, r.hostname(fmt.Sprintf("worker-%d", n))))
		}
	}
	c := r.up(2)
	r.bootstrap(c)
	r.nodesReady(planes + workers)
	for i := range planes + workers {
		r.up(i + 2)
	}
	return c
}

func (r *rack) bootstrap(c *client.Client) {
	r.t.Helper()
	r.eventually("the cluster is bootstrapped", func(ctx context.Context) error {
		err := c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
		if client.StatusCode(err) == codes.AlreadyExists {
			return nil
		}
		return err
	})
}

// kube returns a client for the cluster's Kubernetes, with its kubeconfig.
func (r *rack) kube() *kubernetes.Clientset {
	r.t.Helper()
	c := r.client(2)
	var data []byte
	r.eventually("the kubeconfig is available", func(ctx context.Context) (err error) {
		data, err = c.Kubeconfig(ctx)
		return err
	})
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		r.t.Fatal(err)
	}
	cfg.QPS = -1
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

// nodesReady waits for exactly want Ready nodes, and for every etcd member to be a voter.
func (r *rack) nodesReady(want int) {
	r.t.Helper()
	k := r.kube()
	r.eventually(fmt.Sprintf("%d nodes are ready", want), func(ctx context.Context) error {
		ready, err := readyNodes(ctx, k)
		if err != nil {
			return err
		}
		if len(ready) != want {
			return fmt.Errorf("ready are %v", ready)
		}
		return nil
	})
}

// members returns the names of the etcd voters.
func members(ctx context.Context, c *client.Client) ([]string, error) {
	resp, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range resp.Messages[0].Members {
		if m.IsLearner || m.Hostname == "" {
			return nil, errors.New("a member is still joining")
		}
		names = append(names, m.Hostname)
	}
	return names, nil
}

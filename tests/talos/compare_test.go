package talos

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/sim/loopback"
	simulator "github.com/vitistack/stack/tests/sim/talos"
	stand "github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/lab"
)

// call is a request that the stack makes to nodes. It returns what the stack reads in the answer, without what differs
// between two nodes.
type call struct {
	name string
	make func(context.Context, *client.Client) (string, error)
}

var calls = []call{
	{"Version", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := c.Version(ctx)
		if err != nil {
			return "", err
		}
		return answer.Messages[0].GetVersion().GetTag(), nil
	}},
	{"get SystemInformation", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c.COSI, hardware.SystemInformationID)
		if err != nil {
			return "", err
		}
		return answer.TypedSpec().UUID, nil
	}},
	{"get MachineConfig", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.ActiveID)
		if err != nil {
			return "", err
		}
		return answer.Provider().Machine().Type().String(), nil
	}},
	{"get MachineStatus", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
		if err != nil {
			return "", err
		}
		unmet := []string{}
		for _, u := range answer.TypedSpec().Status.UnmetConditions {
			unmet = append(unmet, u.Name+": "+u.Reason)
		}
		return fmt.Sprintf("%s, ready %v, unmet %v", answer.TypedSpec().Stage, answer.TypedSpec().Status.Ready, unmet), nil
	}},
	{"get BootstrapManifestsConfig", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := safe.StateGetByID[*k8s.BootstrapManifestsConfig](ctx, c.COSI, k8s.BootstrapManifestsConfigID)
		if err != nil {
			return "", err
		}
		return answer.TypedSpec().ProxyImage + " " + answer.TypedSpec().CoreDNSImage, nil
	}},
	{"ServiceInfo etcd", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := c.ServiceInfo(ctx, "etcd")
		var services []string
		for _, s := range answer {
			services = append(services, s.Service.GetState())
		}
		return fmt.Sprint(services), err
	}},
	{"EtcdStatus", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := c.EtcdStatus(ctx)
		if err != nil {
			return "", err
		}
		s := answer.Messages[0].GetMemberStatus()
		return fmt.Sprintf("leader %v, learner %v", s.GetLeader() == s.GetMemberId(), s.GetIsLearner()), nil
	}},
	{"EtcdMemberList", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{QueryLocal: true})
		if err != nil {
			return "", err
		}
		var members []string
		for _, m := range answer.Messages[0].GetMembers() {
			members = append(members, fmt.Sprintf("%s, learner %v, %d peers, %d clients", m.Hostname, m.IsLearner, len(m.PeerUrls), len(m.ClientUrls)))
		}
		return fmt.Sprint(members), nil
	}},
	{"List /var/lib/etcd", func(ctx context.Context, c *client.Client) (string, error) {
		stream, err := c.LS(ctx, &machineapi.ListRequest{Root: "/var/lib/etcd"})
		if err != nil {
			return "", err
		}
		var names []string
		for {
			entry, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				slices.Sort(names)
				return fmt.Sprint(names), nil
			}
			if err != nil {
				return "", err
			}
			names = append(names, entry.GetRelativeName()+entry.GetError())
		}
	}},
	{"Kubeconfig", func(ctx context.Context, c *client.Client) (string, error) {
		answer, err := c.Kubeconfig(ctx)
		return fmt.Sprint(len(answer) > 0), err
	}},
	{"EtcdSnapshot", func(ctx context.Context, c *client.Client) (string, error) {
		stream, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
		if err != nil {
			return "", err
		}
		defer func() { _ = stream.Close() }()
		size, err := io.Copy(io.Discard, stream)
		const page, digest = 512, 32 // https://etcd.io/docs/v3.6/op-guide/recovery: a snapshot ends with its digest
		return fmt.Sprintf("ends with a digest: %v", size%page == digest), err
	}},
	{"ApplyConfiguration, the same", func(ctx context.Context, c *client.Client) (string, error) {
		active, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.ActiveID)
		if err != nil {
			return "", err
		}
		data, err := active.Provider().Bytes()
		if err != nil {
			return "", err
		}
		return apply(ctx, c, data, machineapi.ApplyConfigurationRequest_NO_REBOOT)
	}},
	{"ApplyConfiguration, invalid", func(ctx context.Context, c *client.Client) (string, error) {
		return apply(ctx, c, []byte("machine: [1]\n"), machineapi.ApplyConfigurationRequest_AUTO)
	}},
	{"ApplyConfiguration, empty", func(ctx context.Context, c *client.Client) (string, error) {
		return apply(ctx, c, nil, machineapi.ApplyConfigurationRequest_AUTO)
	}},
	{"EtcdRemoveMemberByID, unknown", func(ctx context.Context, c *client.Client) (string, error) {
		const unknown = 4711
		return "", c.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: unknown})
	}},
	{"EtcdForfeitLeadership", func(ctx context.Context, c *client.Client) (string, error) {
		_, err := c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
		return "", err
	}},
}

func apply(ctx context.Context, c *client.Client, data []byte, mode machineapi.ApplyConfigurationRequest_Mode) (string, error) {
	answer, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: data, Mode: mode})
	if err != nil {
		return "", err
	}
	return answer.Messages[0].GetMode().String(), nil
}

var bootstrap = call{"Bootstrap", func(ctx context.Context, c *client.Client) (string, error) {
	return "", c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
}}

// subject is a node, real or simulated, with clients for it.
type subject struct {
	t                   *testing.T
	address             string
	anonymous, operator *client.Client
	power               func(on bool)
}

// answer makes a call and returns its code and its content in one line. The text of an error is left out if it is one
// of the connection, because it depends on the time at which it ends.
func (s *subject) answer(c *client.Client, call call) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
	defer cancel()
	text, err := call.make(ctx, c)
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded || code == codes.Unavailable:
		return code.String()
	case err != nil:
		text = err.Error()
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, s.address, "ADDRESS"), "\n", " ")
}

// health has the node check its cluster, and returns the reports in one line each.
func (s *subject) health() (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	stream, err := s.operator.ClusterHealthCheck(ctx, 5*time.Second, &clusterapi.ClusterInfo{ControlPlaneNodes: []string{s.address}})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for {
		progress, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return out.String(), err
		}
		out.WriteString(progress.GetMessage() + "\n")
	}
}

// handshake returns what the TLS handshake of the node shows.
func (s *subject) handshake() string {
	asked := false
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 3 * time.Second}, Config: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		},
	}}
	conn, err := dialer.DialContext(s.t.Context(), "tcp", net.JoinHostPort(s.address, "50000"))
	if err != nil {
		return "no handshake"
	}
	defer func() { _ = conn.Close() }()
	peer := conn.(*tls.Conn).ConnectionState().PeerCertificates[0] //nolint:forcetypeassert // of a tls.Dialer
	return fmt.Sprintf("requests a certificate: %v, issuer %s, key %s", asked, peer.Issuer.Organization, peer.PublicKeyAlgorithm)
}

func (s *subject) connect(options ...client.OptionFunc) *client.Client {
	s.t.Helper()
	c, err := client.New(s.t.Context(), append(options, client.WithEndpoints(s.address))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// guestID is the UUID of both nodes.
const guestID = "11111111-2222-4333-8444-555555555555"

// TestSimulator compares each answer of a real node with that of the simulator, in the states through which a control
// plane passes.
func TestSimulator(t *testing.T) {
	if folder() == "" {
		t.Skip("make test-talos sets VITI_TALOS, and builds the programs in it")
	}
	images := serveImages(t)
	real, simulated := startReal(t), startSimulated(t)
	pair := [2]*subject{real, simulated}
	compare := func(state string, pick func(*subject) *client.Client, calls ...call) {
		t.Helper()
		compareHandshake(t, state, pair)
		for _, c := range calls {
			a, b := real.answer(pick(real), c), simulated.answer(pick(simulated), c)
			if a == b || accepted(state, c.name, a, b) {
				continue
			}
			t.Errorf("%s, %s:\n  real       %s\n  simulator  %s", state, c.name, a, b)
		}
	}
	anonymous := func(s *subject) *client.Client { return s.anonymous }
	operator := func(s *subject) *client.Client { return s.operator }

	await(t, "both nodes are in maintenance mode", pair, func(s *subject) error {
		if text := s.handshake(); strings.HasPrefix(text, "no ") {
			return errors.New(text)
		}
		return nil
	})
	compare("maintenance", anonymous, append(slices.Clone(calls), bootstrap)...)

	images.hold("etcd")
	for _, s := range pair {
		s.configure()
	}
	await(t, "both nodes wait for a bootstrap", pair, func(s *subject) error {
		if text := s.answer(s.operator, named("get MachineStatus")); !strings.Contains(text, "unmet [services: etcd not running") {
			return errors.New(text)
		}
		return nil
	})
	compare("configured", operator, calls...)
	compare("configured, anonymous", anonymous, named("Version"), named("get MachineConfig"), bootstrap)
	compare("bootstrap", operator, bootstrap)
	compare("pull of etcd", operator, append(slices.Clone(calls), bootstrap)...)
	images.release()
	running := func(s *subject) error {
		if text := s.answer(s.operator, named("get MachineStatus")); !strings.HasPrefix(text, "running, ready true") {
			return errors.New(text)
		}
		return nil
	}
	await(t, "both nodes run", pair, running)
	compare("running", operator, append(slices.Clone(calls), bootstrap)...)

	for _, s := range pair {
		s.power(false)
	}
	compare("off", operator, named("Version"))
	for _, s := range pair {
		s.power(true)
	}
	await(t, "both nodes run again", pair, running)
	compare("started again", operator, append(slices.Clone(calls), bootstrap)...)
	await(t, "both nodes pass every check of talosctl health", pair, func(s *subject) error {
		out, err := s.health()
		if failed := failedChecks(out); err == nil && len(failed) > 0 {
			err = fmt.Errorf("not OK: %q", failed)
		}
		return err
	})
}

// accepted reports whether a difference is known, and stricter or irrelevant in the simulator.
func accepted(state, name, real, simulated string) bool {
	for _, d := range differences {
		if d.state == state && d.call == name && strings.Contains(real, d.real) && strings.Contains(simulated, d.simulated) {
			return true
		}
	}
	return false
}

// differences are those that stay, with their reason.
var differences = []struct{ state, call, real, simulated, reason string }{}

func compareHandshake(t *testing.T, state string, pair [2]*subject) {
	t.Helper()
	if a, b := pair[0].handshake(), pair[1].handshake(); a != b {
		t.Errorf("%s, TLS handshake:\n  real       %s\n  simulator  %s", state, a, b)
	}
}

// named returns the call with a name.
func named(name string) call {
	return calls[slices.IndexFunc(calls, func(c call) bool { return c.name == name })]
}

// await waits until both nodes are in a state.
func await(t *testing.T, what string, pair [2]*subject, reached func(*subject) error) {
	t.Helper()
	start := time.Now()
	for _, s := range pair {
		for {
			err := reached(s)
			if err == nil {
				break
			}
			if time.Since(start) > 4*time.Minute {
				t.Fatalf("%s: %s: %v", what, s.address, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	t.Logf("%6.1f s  %s", time.Since(start).Seconds(), what)
}

// startReal starts a real node without a seed.
func startReal(t *testing.T) *subject {
	t.Helper()
	const address = "10.195.0.200"
	guest, err := json.Marshal(kubevirt.Guest{ID: guestID, Name: "compared", CPUs: 2, Memory: 4 << 30, NICs: []kubevirt.NIC{{
		Name: "eth0", MAC: "02:00:00:00:aa:01", Gateway: netip.MustParseAddr(lab.Gateway),
		Addresses: []netip.Prefix{netip.MustParsePrefix(address + "/24")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("VITI_LAB", folder())
	run := func(verb string) {
		if err := runNode(verb, guestID, guest); err != nil {
			t.Error(err)
		}
	}
	run("on")
	t.Cleanup(func() {
		if t.Failed() {
			printConsoles(t)
		}
		run("destroy")
	})
	return newSubject(t, address, func(on bool) { run(map[bool]string{true: "on", false: "off"}[on]) })
}

// startSimulated starts a simulated node that has booted a disk image without a seed.
func startSimulated(t *testing.T) *subject {
	t.Helper()
	network, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	// The pull lasts longer than the calls that are made meanwhile.
	timing := simulator.Timing{EtcdPull: 90 * time.Second}
	fleet, err := simulator.Open(t.TempDir(), nil, slog.New(slog.DiscardHandler), simulator.WithTiming(timing))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fleet.Close() })
	address := network.Address(200)
	machine := simulator.Machine{
		ID: guestID, Address: address, Gateway: address.Masked().Addr().Next(), Static: true, Hostname: "compared",
		Version: "v" + versions.DefaultTalos, Kind: "nocloud", Preinstalled: true,
		Links: []simulator.Link{{Name: "eth0", MAC: "02:00:00:00:aa:01"}}, Disks: []simulator.Disk{{Device: "/dev/vda", Size: 20 << 30}},
	}
	power := func(on bool) {
		err := fleet.PowerOff(guestID)
		if on {
			err = fleet.PowerOn(t.Context(), machine)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := fleet.PowerOn(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	return newSubject(t, address.Addr().String(), power)
}

func newSubject(t *testing.T, address string, power func(on bool)) *subject {
	t.Helper()
	s := &subject{t: t, address: address, power: power}
	s.anonymous = s.connect(client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	return s
}

// configure applies a configuration of talosctl to a node in maintenance mode.
func (s *subject) configure() {
	s.t.Helper()
	to := s.t.TempDir()
	path := filepath.Join(to, "patch.yaml")
	if err := os.WriteFile(path, []byte(patch), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if _, err := talosctl(s.t.Context(), "gen", "config", "compared", "https://"+s.address+":6443", "--kubernetes-version", stand.Version,
		"--config-patch", "@"+path, "--output", to, "--force"); err != nil {
		s.t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(to, "controlplane.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := apply(s.t.Context(), s.anonymous, data, machineapi.ApplyConfigurationRequest_AUTO); err != nil {
		s.t.Fatal(err)
	}
	operator, err := clientconfig.Open(filepath.Join(to, "talosconfig"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.operator = s.connect(client.WithConfig(operator))
}

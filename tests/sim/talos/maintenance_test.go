package talos_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/stack/tests/sim/talos"
)

// probe returns a node's state from one handshake: whether it requests a certificate, and who has
// signed its own.
func (r *rack) probe(ctx context.Context, n int) string {
	r.t.Helper()
	ours := x509.NewCertPool()
	ours.AppendCertsFromPEM(r.bundle.Certs.OS.Crt)
	asked := false
	var leaf *x509.Certificate
	conn, err := (&tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		},
		VerifyConnection: func(s tls.ConnectionState) error { leaf = s.PeerCertificates[0]; return nil },
	}}).DialContext(ctx, "tcp", net.JoinHostPort(r.addr(n), "50000"))
	if conn != nil {
		_ = conn.Close()
	}
	switch {
	case leaf == nil:
		return "unreachable: " + errString(err)
	case !asked:
		return "maintenance"
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: ours}); err != nil {
		return "foreign"
	}
	return "ours"
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestProbeTellsFourStates(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2, 3, 4)
	r.apply(3, r.config(machine.TypeControlPlane))
	r.apply(4, r.configFrom(r.foreign(), machine.TypeControlPlane))
	for n, want := range map[int]string{2: "maintenance", 3: "ours", 4: "foreign"} {
		r.eventually("the probe returns "+want, func(ctx context.Context) error {
			if got := r.probe(ctx, n); got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	var refused *net.OpError
	_, err := net.DialTimeout("tcp", net.JoinHostPort(r.addr(5), "50000"), time.Second)
	if !errors.As(err, &refused) {
		t.Errorf("a machine that is off must refuse connections, got %v", err)
	}
}

func TestMaintenancePerVersion(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		version   codes.Code
		services  codes.Code
		noReboot  codes.Code
		unparsed  codes.Code
		bootstrap codes.Code
	}{
		"v1.11.6": {"the maintenance service of 1.11 has few methods", codes.Unimplemented, codes.Unimplemented, codes.Unimplemented, codes.Unknown, codes.Unimplemented},
		"v1.12.4": {"the maintenance service of 1.12 has few methods", codes.Unimplemented, codes.Unimplemented, codes.Unimplemented, codes.Unknown, codes.Unimplemented},
		"v1.13.9": {"1.13 has the whole API, with a reader's rights", codes.OK, codes.OK, codes.OK, codes.InvalidArgument, codes.PermissionDenied},
	}
	for version, tc := range cases {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, version, talos.Timing{})
			r.powerOn(2)
			c := r.insecure(2)
			r.eventually("the machine is in maintenance", func(ctx context.Context) error {
				_, err := c.Disks(ctx)
				return err
			})
			_, err := c.Version(t.Context())
			check(t, tc.reason+": Version", err, tc.version)
			_, err = c.ServiceList(t.Context())
			check(t, tc.reason+": ServiceList", err, tc.services)
			check(t, tc.reason+": Bootstrap", c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{}), tc.bootstrap)
			_, err = c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
				Data: r.config(machine.TypeControlPlane), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT, DryRun: true,
			})
			check(t, tc.reason+": no-reboot", err, tc.noReboot)
			_, err = c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{Data: []byte("machine:\n  colour: red\n")})
			check(t, tc.reason+": an unknown key", err, tc.unparsed)
		})
	}
}

// check compares the gRPC code of a call.
func check(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	got := codes.OK
	if err != nil {
		got = client.StatusCode(err)
	}
	if got != want {
		t.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}

func TestMaintenanceShowsTheHardware(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.11.6", "v1.13.9"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, version, talos.Timing{})
			r.powerOn(2)
			c := r.insecure(2)
			r.eventually("the system information is available", func(ctx context.Context) error {
				info, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c.COSI, hardware.SystemInformationID)
				if err == nil && info.TypedSpec().UUID != r.machine(2).ID {
					t.Errorf("UUID is %s, want %s", info.TypedSpec().UUID, r.machine(2).ID)
				}
				return err
			})
			link, err := safe.StateGetByID[*network.LinkStatus](t.Context(), c.COSI, "eth0")
			if err != nil || link.TypedSpec().HardwareAddr.String() != r.machine(2).Links[0].MAC {
				t.Errorf("link is %v, %v", link, err)
			}
			status, err := safe.StateGetByID[*runtime.MachineStatus](t.Context(), c.COSI, runtime.MachineStatusID)
			if err != nil || status.TypedSpec().Stage != runtime.MachineStageMaintenance || !status.TypedSpec().Status.Ready {
				t.Errorf("status is %v, %v", status, err)
			}
			_, err = safe.StateGetByID[*configres.MachineConfig](t.Context(), c.COSI, configres.ActiveID)
			check(t, "a sensitive resource", err, codes.PermissionDenied)
		})
	}
}

func TestFirstConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		version string
		data    func(r *rack) []byte
		want    codes.Code
	}{
		"Valid": {"a generated configuration", "v1.13.9", func(r *rack) []byte { return r.config(machine.TypeControlPlane) }, codes.OK},
		"Empty": {"an empty configuration", "v1.13.9", func(*rack) []byte { return nil }, codes.InvalidArgument},
		"WorkerEtcd": {"only control planes may configure etcd", "v1.13.9", func(r *rack) []byte {
			return r.config(machine.TypeWorker, "cluster:\n  etcd:\n    subnet: 10.0.0.0/8\n")
		}, codes.InvalidArgument},
		"TwoHostnames": {"the old and the new dialect contradict each other", "v1.13.9", func(r *rack) []byte {
			return r.config(machine.TypeWorker, r.hostname("a"), "machine:\n  network:\n    hostname: b\n")
		}, codes.InvalidArgument},
		"NewerDialect11": {"1.11 does not support HostnameConfig", "v1.11.6", func(r *rack) []byte {
			return append(r.config(machine.TypeWorker), []byte("---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n")...)
		}, codes.Unknown},
		"NewerDialect12": {"1.12 does not support VRFConfig", "v1.12.4", func(r *rack) []byte {
			return append(r.config(machine.TypeWorker), []byte("---\napiVersion: v1alpha1\nkind: VRFConfig\nname: vrf-blue\nlinks: [eth1]\ntable: \"123\"\n")...)
		}, codes.Unknown},
		"Dialect12": {"1.12 knows HostnameConfig", "v1.12.4", func(r *rack) []byte {
			return r.config(machine.TypeWorker, r.hostname("a"))
		}, codes.OK},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, tc.version, talos.Timing{})
			r.powerOn(2)
			c := r.insecure(2)
			r.eventually("the machine is in maintenance", func(ctx context.Context) error {
				_, err := c.Disks(ctx)
				return err
			})
			for _, dryRun := range []bool{true, false} {
				_, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{Data: tc.data(r), DryRun: dryRun})
				check(t, tc.reason, err, tc.want)
			}
		})
	}
}

func TestConfigurationIsLostWithThePower(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{Install: time.Hour})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	r.up(2) // 1.13 uses the configured identity during the installation
	if err := r.fleet.PowerOff(r.machine(2).ID); err != nil {
		t.Fatal(err)
	}
	r.powerOn(2)
	r.eventually("the machine is in maintenance again", func(ctx context.Context) error {
		if got := r.probe(ctx, 2); got != "maintenance" {
			return errors.New(got)
		}
		return nil
	})
}

func TestFailedInstallation(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"a disk that does not exist":        "machine:\n  install:\n    disk: /dev/nvme9n1\n",
		"an image that cannot be pulled":    "machine:\n  install:\n    image: ghcr.io/siderolabs/installer:latest\n",
		"an image whose version is unknown": "machine:\n  install:\n    image: ghcr.io/siderolabs/installer:v9.9.9\n",
	}
	for reason, patch := range cases {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, "v1.13.9", talos.Timing{Install: 300 * time.Millisecond})
			r.powerOn(2)
			r.apply(2, r.config(machine.TypeControlPlane, patch))
			r.up(2)
			r.eventually("the machine is in maintenance again", func(ctx context.Context) error {
				if got := r.probe(ctx, 2); got != "maintenance" {
					return errors.New(got)
				}
				return nil
			})
		})
	}
}

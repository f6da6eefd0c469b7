package talos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/tests/sim/talos"
)

const (
	labelPatch = "machine:\n  nodeLabels:\n    pool: blue\n"
	// udevPatch changes a setting that requires a reboot.
	udevPatch = "machine:\n  udev:\n    rules:\n      - SUBSYSTEM==\"block\"\n"
)

// configured returns the machine's active configuration as YAML.
func configured(ctx context.Context, c *client.Client) (string, error) {
	r, err := safe.StateGetByID[*configres.MachineConfig](ctx, c.COSI, configres.ActiveID)
	if err != nil {
		return "", err
	}
	data, err := r.Provider().Bytes()
	return string(data), err
}

func bootID(ctx context.Context, c *client.Client) (string, error) {
	in, err := c.Read(ctx, "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	data := make([]byte, 36)
	_, err = in.Read(data)
	return string(data), err
}

func TestApplyModes(t *testing.T) {
	t.Parallel()
	type mode = machineapi.ApplyConfigurationRequest_Mode
	cases := map[string]applyCase{
		"AutoImmediate":    {"a label is applied at once", machineapi.ApplyConfigurationRequest_AUTO, labelPatch, codes.OK, false, true},
		"AutoReboot":       {"udev rules require a reboot", machineapi.ApplyConfigurationRequest_AUTO, udevPatch, codes.OK, true, true},
		"NoReboot":         {"a label is applied at once", machineapi.ApplyConfigurationRequest_NO_REBOOT, labelPatch, codes.OK, false, true},
		"NoRebootRefused":  {"a change that requires a reboot is rejected", machineapi.ApplyConfigurationRequest_NO_REBOOT, udevPatch, codes.InvalidArgument, false, false},
		"Reboot":           {"a reboot on request", machineapi.ApplyConfigurationRequest_REBOOT, labelPatch, codes.OK, true, true},
		"Staged":           {"the change waits for the next boot", machineapi.ApplyConfigurationRequest_STAGED, labelPatch, codes.OK, false, false},
		"Try":              {"the change is active until it is reverted", machineapi.ApplyConfigurationRequest_TRY, labelPatch, codes.OK, false, true},
		"TryRefused":       {"a change that requires a reboot cannot be tried", machineapi.ApplyConfigurationRequest_TRY, udevPatch, codes.InvalidArgument, false, false},
		"AutoInvalid":      {"an invalid configuration is rejected", machineapi.ApplyConfigurationRequest_AUTO, "", codes.InvalidArgument, false, false},
		"UnknownMode":      {"a mode that does not exist", mode(9), labelPatch, codes.InvalidArgument, false, false},
		"StagedUnreadable": {"a staged configuration must be readable as well", machineapi.ApplyConfigurationRequest_STAGED, "", codes.InvalidArgument, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.run(t)
		})
	}
}

type applyCase struct {
	reason string
	mode   machineapi.ApplyConfigurationRequest_Mode
	// patch is the change. Without one the configuration is invalid.
	patch   string
	want    codes.Code
	reboots bool
	active  bool
}

func (tc applyCase) run(t *testing.T) {
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	c := r.up(2)
	before, err := bootID(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	data, marker := []byte("nonsense: true\n"), "nonsense"
	if tc.patch != "" {
		data, marker = r.config(machine.TypeControlPlane, tc.patch), "pool: blue"
	}
	if tc.patch == udevPatch {
		marker = "SUBSYSTEM"
	}
	_, err = c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
		Data: data, Mode: tc.mode, TryModeTimeout: durationpb.New(time.Minute),
	})
	check(t, tc.reason, err, tc.want)
	if tc.reboots {
		r.rebooted(c, before)
	}
	text, err := configured(t.Context(), c)
	if got := strings.Contains(text, marker); err != nil || got != tc.active {
		t.Errorf("%s: the change is active: %v, want %v, %v", tc.reason, got, tc.active, err)
	}
	if after, err := bootID(t.Context(), c); err != nil || (after != before) != tc.reboots {
		t.Errorf("%s: boot ID went from %s to %s, %v", tc.reason, before, after, err)
	}
}

// rebooted waits until the machine has another boot ID.
func (r *rack) rebooted(c *client.Client, before string) {
	r.t.Helper()
	r.eventually("the machine has rebooted", func(ctx context.Context) error {
		now, err := bootID(ctx, c)
		if err == nil && now == before {
			return errors.New("it is still the same boot")
		}
		return err
	})
}

func TestStagedAndTried(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	c := r.up(2)
	apply := func(mode machineapi.ApplyConfigurationRequest_Mode, patch string) {
		t.Helper()
		if _, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: r.config(machine.TypeControlPlane, patch), Mode: mode, TryModeTimeout: durationpb.New(50 * time.Millisecond),
		}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(marker string, want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			text, err := configured(ctx, c)
			if err == nil && strings.Contains(text, marker) != want {
				return fmt.Errorf("%q is there: %v", marker, !want)
			}
			return err
		}
	}
	apply(machineapi.ApplyConfigurationRequest_TRY, labelPatch)
	r.eventually("the tried configuration is reverted", has("pool: blue", false))
	before, err := bootID(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	apply(machineapi.ApplyConfigurationRequest_STAGED, labelPatch)
	r.eventually("the persistent configuration is newer than the active one", func(ctx context.Context) error {
		kept, err := safe.StateGetByID[*configres.MachineConfig](ctx, c.COSI, configres.PersistentID)
		if err != nil {
			return err
		}
		text, err := kept.Provider().Bytes()
		if err == nil && !strings.Contains(string(text), "pool: blue") {
			return errors.New("the staged configuration is not on the disk")
		}
		return err
	})
	if err := c.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.rebooted(c, before)
	r.eventually("the staged configuration is active", has("pool: blue", true))
}

func TestNodeFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	c := r.cluster(1, 1)
	worker, k := r.up(3), r.kube()
	apply := func(patches ...string) {
		t.Helper()
		if _, err := worker.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: r.config(machine.TypeWorker, append(patches, r.hostname("worker-3"))...),
			Mode: machineapi.ApplyConfigurationRequest_AUTO,
		}); err != nil {
			t.Fatal(err)
		}
	}
	label := func(want string) {
		t.Helper()
		node, err := k.CoreV1().Nodes().Get(t.Context(), "worker-3", metav1.GetOptions{})
		if err != nil || node.Labels["pool"] != want {
			t.Errorf("label is %q, want %q, %v", node.Labels["pool"], want, err)
		}
	}
	apply(labelPatch)
	label("blue")
	apply("machine:\n  nodeLabels:\n    pool: green\n    node-role.kubernetes.io/worker: \"\"\n")
	label("blue") // a kubelet may not set a role label, and then sets no label
	apply()
	label("")
	apply("machine:\n  kubelet:\n    image: ghcr.io/siderolabs/kubelet:v1.34.2\n")
	r.eventually("the kubelet is replaced", func(ctx context.Context) error {
		node, err := k.CoreV1().Nodes().Get(ctx, "worker-3", metav1.GetOptions{})
		if err == nil && node.Status.NodeInfo.KubeletVersion != "v1.34.2" {
			return errors.New(node.Status.NodeInfo.KubeletVersion)
		}
		return err
	})
	if _, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
		Data: r.config(machine.TypeControlPlane, r.hostname("cp-2"),
			"cluster:\n  apiServer:\n    image: registry.k8s.io/kube-apiserver:v1.34.2\n"),
		Mode: machineapi.ApplyConfigurationRequest_AUTO,
	}); err != nil {
		t.Fatal(err)
	}
	r.eventually("the API server is replaced", func(context.Context) error {
		v, err := k.Discovery().ServerVersion()
		if err == nil && v.GitVersion != "v1.34.2" {
			return errors.New(v.GitVersion)
		}
		return err
	})
}

func TestStaticAddressMovesTheNode(t *testing.T) {
	t.Parallel()
	for version, patch := range map[string]string{
		"v1.11.6": "machine:\n  network:\n    interfaces:\n      - deviceSelector:\n          hardwareAddr: 02:00:00:00:*\n        addresses: [%s]\n",
		"v1.12.4": "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses:\n  - address: %s\n",
		"v1.13.9": "apiVersion: v1alpha1\nkind: LinkAliasConfig\nname: main\nselector:\n  match: mac(link.hardware_addr) == \"02:00:00:00:00:02\"\n---\n" +
			"apiVersion: v1alpha1\nkind: LinkConfig\nname: main\naddresses:\n  - address: %s\n",
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, version, talos.Timing{})
			r.powerOn(2)
			r.apply(2, r.config(machine.TypeControlPlane, fmt.Sprintf(patch, r.net.Address(7))))
			r.up(7)
			if got := r.probe(t.Context(), 2); !strings.HasPrefix(got, "unreachable") {
				t.Errorf("the address from DHCP still answers: %s", got)
			}
		})
	}
}

func TestLinkWithoutAddressIsUnreachable(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{Install: 200 * time.Millisecond})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane, "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: 1400\n"))
	r.eventually("the machine is gone", func(ctx context.Context) error {
		if got := r.probe(ctx, 2); !strings.HasPrefix(got, "unreachable") {
			return errors.New(got)
		}
		return nil
	})
}

func TestDHCPMovesTheNode(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	r.up(2)
	m := r.machine(2)
	m.Address = r.net.Address(8)
	if err := r.fleet.PowerOn(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.up(8)
	other := r.machine(3)
	other.Address = r.net.Address(8)
	if err := r.fleet.PowerOn(t.Context(), other); err == nil {
		t.Error("two machines got one address")
	}
}

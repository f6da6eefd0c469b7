package talos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"github.com/vitistack/stack/tests/sim/talos"
)

// encryptionPatch encrypts the volume EPHEMERAL, and statePatch the volume STATE.
const (
	encryptionPatch = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n  provider: luks2\n  keys:\n    - slot: 0\n      nodeID: {}\n"
	statePatch      = "machine:\n  systemDiskEncryption:\n    state:\n      provider: luks2\n      keys:\n        - slot: 0\n          nodeID: {}\n"
	limitPatch      = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nprovisioning:\n  maxSize: 8GiB\n"
	userPatch       = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning:\n  diskSelector:\n    match: disk.dev_path == \"/dev/vdb\"\n  minSize: %s\n"
)

func volumeOf(ctx context.Context, c *client.Client, name string) (*block.VolumeStatusSpec, error) {
	r, err := safe.StateGetByID[*block.VolumeStatus](ctx, c.COSI, name)
	if err != nil {
		return nil, err
	}
	return r.TypedSpec(), nil
}

// TestVolumesOfANewNode checks that the volumes of a node are as its first configuration says, and that a later one
// changes only volumes that do not exist yet.
func TestVolumesOfANewNode(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane, encryptionPatch, limitPatch))
	c := r.up(2)
	check := func(name string, size uint64, provider block.EncryptionProviderType) {
		t.Helper()
		r.eventually("volume "+name+" is as expected", func(ctx context.Context) error {
			v, err := volumeOf(ctx, c, name)
			if err != nil || v.Size != size || v.EncryptionProvider != provider {
				return errors.New(fmt.Sprint(v, err))
			}
			return nil
		})
	}
	check("EPHEMERAL", 8<<30, block.EncryptionProviderLUKS2)
	change := func(patches ...string) {
		t.Helper()
		_, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
			Data: r.config(machine.TypeControlPlane, patches...), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(encryptionPatch, strings.Replace(limitPatch, "8GiB", "6GiB", 1), fmt.Sprintf(userPatch, "1GiB"))
	check("EPHEMERAL", 8<<30, block.EncryptionProviderLUKS2)
	check("u-data", 1<<30, block.EncryptionProviderNone)
	change(encryptionPatch, fmt.Sprintf(userPatch, "2GiB"))
	check("u-data", 1<<30, block.EncryptionProviderNone)
}

// TestEncryptionOfAnInstalledNode checks that a node whose volume is not as its configuration says does not start
// again: without STATE it does not answer, and without EPHEMERAL it has no kubelet.
func TestEncryptionOfAnInstalledNode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		patch   string
		mode    machineapi.ApplyConfigurationRequest_Mode
		answers bool
	}{
		"State":     {statePatch, machineapi.ApplyConfigurationRequest_REBOOT, false},
		"Ephemeral": {encryptionPatch, machineapi.ApplyConfigurationRequest_REBOOT, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, "v1.13.9", talos.Timing{})
			r.powerOn(2)
			r.apply(2, r.config(machine.TypeControlPlane))
			c := r.up(2)
			before, err := bootID(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{Data: r.config(machine.TypeControlPlane, tc.patch), Mode: tc.mode}); err != nil {
				t.Fatal(err)
			}
			if !tc.answers {
				r.eventually("the machine stays away", func(ctx context.Context) error {
					if got := r.probe(ctx, 2); !strings.HasPrefix(got, "unreachable") {
						return errors.New(got)
					}
					return nil
				})
				return
			}
			r.rebooted(c, before)
			info, err := c.ServiceInfo(t.Context(), "cri")
			if err != nil || len(info) > 0 && info[0].Service.GetState() == "Running" {
				t.Errorf("the container runtime runs without the volume EPHEMERAL: %v, %v", info, err)
			}
		})
	}
}

package talos_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/tests/sim/talos"
)

func tag(ctx context.Context, c *client.Client) (string, error) {
	resp, err := c.Version(ctx)
	if err != nil {
		return "", err
	}
	return resp.Messages[0].Version.Tag, nil
}

// upgrade calls the method that all versions have.
func upgrade(ctx context.Context, c *client.Client, image string) error {
	_, err := c.UpgradeWithOptions(ctx, client.WithUpgradeImage(image))
	return err
}

// runs waits until the machine runs a version in another boot.
func (r *rack) runs(c *client.Client, before, want string) {
	r.t.Helper()
	r.rebooted(c, before)
	if got, err := tag(r.t.Context(), c); err != nil || got != want {
		r.t.Errorf("the machine runs %s, want %s, %v", got, want, err)
	}
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		from    string
		image   string
		refused codes.Code
		want    string
	}{
		"Patch":       {"a patch release", "v1.12.4", "ghcr.io/siderolabs/installer:v1.12.6", codes.OK, "v1.12.6"},
		"Minor":       {"the next minor release", "v1.12.4", "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.13.0", codes.OK, "v1.13.0"},
		"Unpullable":  {"an image that does not exist", "v1.12.4", "ghcr.io/siderolabs/installer", codes.Unknown, "v1.12.4"},
		"BadOldTag":   {"an unknown version", "v1.12.4", "ghcr.io/siderolabs/installer:v0.1.0", codes.Unknown, "v1.12.4"},
		"NoImage":     {"an empty image", "v1.12.4", "", codes.Unknown, "v1.12.4"},
		"Unchanged13": {"the same version again", "v1.13.9", "ghcr.io/siderolabs/installer:v1.13.9", codes.OK, "v1.13.9"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, tc.from, talos.Timing{})
			c := r.cluster(1, 0)
			before, err := bootID(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			check(t, tc.reason, upgrade(t.Context(), c, tc.image), tc.refused)
			if tc.refused != codes.OK {
				return
			}
			r.runs(c, before, tc.want)
			r.nodesReady(1)
			node, err := r.kube().CoreV1().Nodes().Get(t.Context(), "cp-2", metav1.GetOptions{})
			if err != nil || node.Status.NodeInfo.OSImage != "Talos ("+tc.want+")" || node.Spec.Unschedulable {
				t.Errorf("%s: the node says %s, unschedulable %v, %v", tc.reason, node.Status.NodeInfo.OSImage, node.Spec.Unschedulable, err)
			}
			if schematic := strings.Contains(tc.image, "factory"); schematic {
				list, err := safe.StateListAll[*runtime.ExtensionStatus](t.Context(), c.COSI)
				if err != nil || list.Len() != 1 || !strings.Contains(tc.image, list.Get(0).TypedSpec().Metadata.Version) {
					t.Errorf("%s: the schematic is lost: %v, %v", tc.reason, list, err)
				}
			}
		})
	}
}

func TestUpgradeMindsEtcd(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.12.4", talos.Timing{})
	c := r.cluster(2, 0)
	r.voters(c, "cp-2", "cp-3")
	err := upgrade(t.Context(), c, "ghcr.io/siderolabs/installer:v1.12.6")
	check(t, "one of two members may not leave", err, codes.Unknown)
}

func TestTooFarAnUpgradeComesBackUnchanged(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.11.6", talos.Timing{})
	c := r.cluster(1, 0)
	before, err := bootID(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	// Every simulated version supports 1.34. None supports a kubelet of 1.25.
	if _, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
		Data: r.config(machine.TypeControlPlane, r.hostname("cp-2"), "machine:\n  kubelet:\n    image: ghcr.io/siderolabs/kubelet:v1.25.0\n"),
		Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	}); err != nil {
		t.Fatal(err)
	}
	if err := upgrade(t.Context(), c, "ghcr.io/siderolabs/installer:v1.12.4"); err != nil {
		t.Fatal(err)
	}
	r.runs(c, before, "v1.11.6")
}

func TestRollback(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.12.4", talos.Timing{})
	c := r.cluster(1, 0)
	check(t, "there is no earlier release", c.Rollback(t.Context()), codes.Unknown)
	before, err := bootID(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := upgrade(t.Context(), c, "ghcr.io/siderolabs/installer:v1.12.6"); err != nil {
		t.Fatal(err)
	}
	r.runs(c, before, "v1.12.6")
	if before, err = bootID(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := c.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.runs(c, before, "v1.12.4")
}

// lifecycleUpgrade runs an installer and returns its exit code.
func lifecycleUpgrade(ctx context.Context, c *client.Client, image string) (int32, error) {
	stream, err := c.LifecycleClient.Upgrade(ctx, &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: systemContainerd(), Source: &machineapi.InstallArtifactsSource{ImageName: image},
	})
	if err != nil {
		return 0, err
	}
	code := int32(-1)
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return code, nil
		}
		if err != nil {
			return 0, err
		}
		if exit, ok := msg.Progress.Response.(*machineapi.LifecycleServiceInstallProgress_ExitCode); ok {
			code = exit.ExitCode
		}
	}
}

func systemContainerd() *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM}
}

// pull pulls an image and returns its reference by digest.
func pull(ctx context.Context, c *client.Client, image string) (string, error) {
	stream, err := c.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{Containerd: systemContainerd(), ImageRef: image})
	if err != nil {
		return "", err
	}
	name := ""
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
		if n, ok := msg.Response.(*machineapi.ImageServicePullResponse_Name); ok {
			name = n.Name
		}
	}
}

func TestLifecycleUpgrade(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.5", talos.Timing{})
	c := r.cluster(1, 0)
	const image = "ghcr.io/siderolabs/installer:v1.13.9"
	_, err := lifecycleUpgrade(t.Context(), c, image)
	check(t, "an image that was not pulled", err, codes.Internal)
	_, err = pull(t.Context(), c, "no such image")
	check(t, "an image that does not exist", err, codes.NotFound)
	pinned, err := pull(t.Context(), c, image)
	if err != nil || !strings.Contains(pinned, "@sha256:") {
		t.Fatalf("the pulled image is %q, %v", pinned, err)
	}
	code, err := lifecycleUpgrade(t.Context(), c, pinned)
	if err != nil || code != 0 {
		t.Fatalf("the installer ended with %d, %v", code, err)
	}
	if got, err := tag(t.Context(), c); err != nil || got != "v1.13.5" {
		t.Errorf("the machine runs %s before its reboot, %v", got, err)
	}
	before, err := bootID(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.runs(c, before, "v1.13.9")
}

func TestLifecycleIsNew(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.12.4", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	c := r.up(2)
	_, err := lifecycleUpgrade(t.Context(), c, "ghcr.io/siderolabs/installer:v1.12.6")
	check(t, "1.12 has no lifecycle service", err, codes.Unimplemented)
	_, err = pull(t.Context(), c, "ghcr.io/siderolabs/installer:v1.12.6")
	check(t, "1.12 has no image service", err, codes.Unimplemented)
}

func TestOneInstallerAtATime(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.5", talos.Timing{Install: 500 * time.Millisecond})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	c := r.up(2)
	r.eventually("the machine has been installed", func(ctx context.Context) error {
		_, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
		if err != nil {
			return err
		}
		if disks, err := c.Disks(ctx); err != nil || !disks.Messages[0].Disks[0].SystemDisk {
			return errors.Join(err, errors.New("no system disk"))
		}
		return nil
	})
	image, err := pull(t.Context(), c, "ghcr.io/siderolabs/installer:v1.13.9")
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	for range 2 {
		go func() { _, err := lifecycleUpgrade(t.Context(), c, image); results <- err }()
	}
	refused := 0
	for range 2 {
		if err := <-results; client.StatusCode(err) == codes.FailedPrecondition {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d of two installers were rejected, want 1", refused)
	}
}

package talos

import (
	"context"
	"fmt"
	"slices"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lifecycleService installs and upgrades from pulled images, in Talos 1.13 and later. It does not
// reboot.
type lifecycleService struct {
	machineapi.UnimplementedLifecycleServiceServer
	boot *boot
}

// Install writes Talos to a disk of a machine without an installation.
func (s *lifecycleService) Install(in *machineapi.LifecycleServiceInstallRequest, out grpc.ServerStreamingServer[machineapi.LifecycleServiceInstallResponse]) error {
	b := s.boot
	send := func(p *machineapi.LifecycleServiceInstallProgress) error {
		return out.Send(&machineapi.LifecycleServiceInstallResponse{Progress: p})
	}
	return b.runInstaller(out.Context(), "installation", in.GetSource().GetImageName(), send, func() error {
		disk := in.GetDestination().GetDisk()
		known := slices.ContainsFunc(b.node.Machine.Disks, func(d Disk) bool { return d.Device == disk })
		switch {
		case b.node.Installed:
			return status.Error(codes.AlreadyExists, "machine is already installed")
		case disk == "":
			return status.Error(codes.InvalidArgument, "destination disk is required")
		case !known:
			return status.Errorf(codes.InvalidArgument, "invalid disk path: lstat %s: no such file or directory", disk)
		}
		return nil
	}, func(next release) error {
		b.node.Installed, b.node.Volatile, b.node.Next = true, false, &next
		return nil
	})
}

// Upgrade writes another Talos for the next boot, and keeps the present one.
func (s *lifecycleService) Upgrade(in *machineapi.LifecycleServiceUpgradeRequest, out grpc.ServerStreamingServer[machineapi.LifecycleServiceUpgradeResponse]) error {
	b := s.boot
	send := func(p *machineapi.LifecycleServiceInstallProgress) error {
		return out.Send(&machineapi.LifecycleServiceUpgradeResponse{Progress: p})
	}
	return b.runInstaller(out.Context(), "upgrade", in.GetSource().GetImageName(), send, func() error {
		if !b.node.Installed {
			return status.Error(codes.FailedPrecondition, "machine is not installed")
		}
		return nil
	}, func(next release) error {
		if err := upgradeable(b.node.Release, next, b.node.config); err != nil {
			return err
		}
		b.node.Next = &next
		return nil
	})
}

// runInstaller checks allowed and the image, and then calls work with the image's release. A failure
// of work is an exit code.
func (b *boot) runInstaller(
	ctx context.Context, doing, image string, send func(*machineapi.LifecycleServiceInstallProgress) error,
	allowed func() error, work func(release) error,
) error {
	unlock, err := b.accept()
	if err != nil {
		return err
	}
	next, err := b.claimInstaller(doing, image, allowed)
	install := b.node.fleet.timing.Install
	unlock()
	if err != nil {
		return err
	}
	defer b.releaseInstaller()
	if err := say(send, fmt.Sprintf("running Talos installer %s", next.Version)); err != nil {
		return err
	}
	pause := time.NewTimer(install)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-b.ctx.Done():
		return errRestarting
	case <-pause.C:
	}
	if unlock, err = b.accept(); err != nil {
		return err
	}
	err = work(next)
	if err == nil {
		err = b.node.save()
	}
	unlock()
	code := int32(0)
	if err != nil {
		code = 1
		if err := say(send, "error: "+err.Error()); err != nil {
			return err
		}
	} else if err := say(send, doing+" of "+next.Version+" complete"); err != nil {
		return err
	}
	return send(&machineapi.LifecycleServiceInstallProgress{Response: &machineapi.LifecycleServiceInstallProgress_ExitCode{ExitCode: code}})
}

// claimInstaller checks the request and prevents a second concurrent installer. Callers hold Fleet.mu.
func (b *boot) claimInstaller(doing, image string, allowed func() error) (release, error) {
	if b.installing {
		return release{}, status.Error(codes.FailedPrecondition, "another installation/upgrade is already in progress")
	}
	if image == "" {
		return release{}, status.Error(codes.InvalidArgument, "installer image name is required")
	}
	if err := allowed(); err != nil {
		return release{}, err
	}
	stored, ok := b.stored(image)
	if !ok {
		return release{}, status.Errorf(codes.Internal, "%s failed: failed to get image %q: not found", doing, image)
	}
	next, err := releaseOf(stored.Ref, b.node.Release)
	if err != nil {
		return release{}, status.Errorf(codes.Internal, "%s failed: %v", doing, err)
	}
	b.installing = true
	return next, nil
}

func (b *boot) releaseInstaller() {
	b.node.fleet.mu.Lock()
	defer b.node.fleet.mu.Unlock()
	b.installing = false
}

func say(send func(*machineapi.LifecycleServiceInstallProgress) error, message string) error {
	return send(&machineapi.LifecycleServiceInstallProgress{Response: &machineapi.LifecycleServiceInstallProgress_Message{Message: message}})
}

package talos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Dmesg streams the kernel log, and continues if the request asks to follow it.
func (a *api) Dmesg(in *machineapi.DmesgRequest, out grpc.ServerStreamingServer[common.Data]) error {
	log, at := a.boot.kmsg, 0
	if in.Tail {
		lines, _ := log.from(0)
		at = len(lines)
	}
	for {
		lines, grown := log.from(at)
		at += len(lines)
		for _, line := range lines {
			if err := out.Send(&common.Data{Bytes: []byte(line)}); err != nil {
				return err
			}
		}
		if !in.Follow {
			return nil
		}
		select {
		case <-out.Context().Done():
			return out.Context().Err()
		case <-a.boot.ctx.Done():
			return nil
		case <-grown:
		}
	}
}

// Logs streams a service's log.
func (a *api) Logs(in *machineapi.LogsRequest, out grpc.ServerStreamingServer[common.Data]) error {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return err
	}
	known := false
	var text strings.Builder
	for _, s := range servicesOf(b.facts()) {
		if s.id == in.Id {
			known = true
			fmt.Fprintf(&text, "%s: service %s is %s: %s\n", b.began.UTC().Format("2006/01/02 15:04:05"), s.id, strings.ToLower(s.state), s.message)
		}
	}
	unlock()
	if !known {
		return fmt.Errorf("log %q was not registered", in.Id)
	}
	if err := sendData(out, []byte(text.String())); err != nil || !in.Follow {
		return err
	}
	select {
	case <-out.Context().Done():
		return out.Context().Err()
	case <-b.ctx.Done():
		return nil
	}
}

// Read streams one of the few files of a simulated machine.
func (a *api) Read(in *machineapi.ReadRequest, out grpc.ServerStreamingServer[common.Data]) error {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return err
	}
	files := map[string]string{
		"/proc/sys/kernel/random/boot_id": b.id + "\n",
		"/proc/version":                   "Linux version " + kernelVersion + "-talos\n",
		"/etc/hostname":                   b.network.hostname + "\n",
		"/etc/os-release":                 fmt.Sprintf("NAME=\"Talos\"\nID=talos\nVERSION_ID=%[1]s\nPRETTY_NAME=\"Talos (%[1]s)\"\n", b.node.Release.Version),
	}
	unlock()
	content, ok := files[in.Path]
	if !ok {
		return fmt.Errorf("stat %s: no such file or directory", in.Path)
	}
	return sendData(out, []byte(content))
}

// List streams the entries of a directory. Only etcd's is simulated, which shows whether the machine
// has a cluster's data.
func (a *api) List(in *machineapi.ListRequest, out grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return err
	}
	controlPlane, held := b.node.controlPlane(), b.node.Etcd != nil
	unlock()
	const dir = "/var/lib/etcd"
	root := "/" + strings.Trim(in.Root, "/")
	if root != dir || !controlPlane {
		return fmt.Errorf("lstat %s: no such file or directory", root)
	}
	names := []string{"."}
	if held {
		names = append(names, "member")
	}
	for _, name := range names {
		info := &machineapi.FileInfo{Name: dir, RelativeName: name, IsDir: true, Mode: 0o20000000700}
		if name != "." {
			info.Name += "/" + name
		}
		if err := out.Send(info); err != nil {
			return err
		}
	}
	return nil
}

// errNoAddress is the error about a link without an address.
var errNoAddress = errors.New("the configuration takes the link away from DHCP and sets no address")

// ImageList lists the images of a containerd namespace.
func (a *api) ImageList(_ *machineapi.ImageListRequest, out grpc.ServerStreamingServer[machineapi.ImageListResponse]) error {
	images, err := a.boot.images()
	if err != nil {
		return err
	}
	for _, i := range images {
		if err := out.Send(&machineapi.ImageListResponse{Name: i.Ref, Digest: i.digest(), Size: imageSize}); err != nil {
			return err
		}
	}
	return nil
}

// validImage rejects a text that is no image reference.
func validImage(ref string) error {
	if ref == "" || strings.ContainsAny(ref, " \t\n") || (imageTag(ref) == "" && !strings.Contains(ref, "@sha256:")) {
		return status.Errorf(codes.NotFound, "error pulling image: failed to resolve reference %q: not found", ref)
	}
	if !isPublished(ref) {
		return status.Errorf(codes.NotFound, "error pulling image: failed to pull image %[1]q: failed to resolve image: %[1]s: not found", ref)
	}
	return nil
}

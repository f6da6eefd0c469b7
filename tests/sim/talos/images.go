package talos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/stack/apis/versions"
)

// pulled is an image in the machine's store.
type pulled struct {
	Ref string `json:"ref"`
}

// kubernetesImages are the names of images that have a tag for each release of Kubernetes.
var kubernetesImages = []string{"kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"}

// isPublished reports whether a registry has an image. Registries have the releases of Kubernetes that are known to
// exist, and every other image.
func isPublished(ref string) bool {
	name, _, _ := strings.Cut(path.Base(ref), ":")
	return !slices.Contains(kubernetesImages, name) || strings.Contains(ref, "@") || versions.IsReleased(strings.TrimPrefix(imageTag(ref), "v"))
}

// notFoundRetries is how long Talos tries to pull the image of a service that is not found: six times, with growing
// pauses (internal/pkg/containers/image in Talos 1.13, PullRetryInterval and MaxNotFoundRetries).
const notFoundRetries = 142 * time.Second

// imageSize is the size of every image, in bytes.
const imageSize = 64 << 20

// digest returns the digest of an image.
func (p pulled) digest() string {
	sum := sha256.Sum256([]byte(p.Ref))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// pinned returns the reference by digest, without a tag.
func (p pulled) pinned() string {
	if strings.Contains(p.Ref, "@") {
		return p.Ref
	}
	return strings.TrimSuffix(p.Ref, ":"+imageTag(p.Ref)) + "@" + p.digest()
}

func (b *boot) images() ([]pulled, error) {
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return slices.Clone(b.node.Images), nil
}

// pull adds an image to the store.
func (b *boot) pull(ref string) (pulled, error) {
	if err := validImage(ref); err != nil {
		return pulled{}, err
	}
	unlock, err := b.accept()
	if err != nil {
		return pulled{}, err
	}
	defer unlock()
	image := b.store(ref)
	return image, b.node.save()
}

// store adds an image to the store, and returns it. Callers hold Fleet.mu.
func (b *boot) store(ref string) pulled {
	image, ok := b.stored(ref)
	if !ok {
		image = pulled{Ref: ref}
		b.node.Images = append(b.node.Images, image)
	}
	return image
}

// stored returns an image by any of its references. Callers hold Fleet.mu.
func (b *boot) stored(ref string) (pulled, bool) {
	i := slices.IndexFunc(b.node.Images, func(p pulled) bool { return p.Ref == ref || p.pinned() == ref })
	if i < 0 {
		return pulled{}, false
	}
	return b.node.Images[i], true
}

// ImagePull pulls an image.
func (a *api) ImagePull(_ context.Context, in *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse, error) {
	if _, err := a.boot.pull(in.Reference); err != nil {
		return nil, err
	}
	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, nil
}

// imageService is the image API of Talos 1.13 and later.
type imageService struct {
	machineapi.UnimplementedImageServiceServer
	boot *boot
}

// List streams the images in the store.
func (s *imageService) List(_ *machineapi.ImageServiceListRequest, out grpc.ServerStreamingServer[machineapi.ImageServiceListResponse]) error {
	images, err := s.boot.images()
	if err != nil {
		return err
	}
	for _, i := range images {
		if err := out.Send(&machineapi.ImageServiceListResponse{Name: i.Ref, Digest: i.digest(), Size: imageSize}); err != nil {
			return err
		}
	}
	return nil
}

// Pull pulls an image, and finally returns its reference by digest.
func (s *imageService) Pull(in *machineapi.ImageServicePullRequest, out grpc.ServerStreamingServer[machineapi.ImageServicePullResponse]) error {
	image, err := s.boot.pull(in.ImageRef)
	if err != nil {
		return err
	}
	progress := &machineapi.ImageServicePullLayerProgress{
		Status:  machineapi.ImageServicePullLayerProgress_EXTRACT_COMPLETE,
		Elapsed: durationpb.New(0), Offset: imageSize, Total: imageSize,
	}
	if err := out.Send(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{
		PullProgress: &machineapi.ImageServicePullProgress{LayerId: image.digest(), Progress: progress},
	}}); err != nil {
		return err
	}
	return out.Send(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_Name{Name: image.pinned()}})
}

// Remove removes an image from the store.
func (s *imageService) Remove(_ context.Context, in *machineapi.ImageServiceRemoveRequest) (*emptypb.Empty, error) {
	unlock, err := s.boot.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	image, ok := s.boot.stored(in.ImageRef)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "image %q: not found", in.ImageRef)
	}
	n := s.boot.node
	n.Images = slices.DeleteFunc(n.Images, func(p pulled) bool { return p == image })
	return &emptypb.Empty{}, n.save()
}

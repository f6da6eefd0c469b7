package talos

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// CheckKubelet returns a UserError if a node whose kubelet does not run finds no image for it. version is its Kubernetes
// version. A node is asked only about a version that is not known to be released, because the question begins a pull.
func CheckKubelet(ctx context.Context, address string, a *Credentials, version string) error {
	if versions.IsReleased(version) {
		return nil
	}
	ctx, c, end, err := Connect(ctx, address, a, ShortTimeout)
	if err != nil {
		return err
	}
	defer end()
	spec, err := safe.StateGetByID[*k8s.KubeletSpec](ctx, c.COSI, k8s.KubeletID)
	if err != nil {
		return fmt.Errorf("read the kubelet of %s: %w", address, err)
	}
	return checkRelease(ctx, c, version, spec.TypedSpec().Image)
}

// checkRelease returns a UserError if a node finds no image of a version. A node that does not answer in time has
// begun to pull the image.
func checkRelease(ctx context.Context, c *client.Client, version, image string) error {
	if versions.IsReleased(version) || image == "" {
		return nil
	}
	err := c.ImagePull(ctx, common.ContainerdNamespace_NS_SYSTEM, image) //nolint:staticcheck // its successor is not there before 1.13
	if status.Code(err) != codes.NotFound {
		return nil
	}
	problem := versions.Unreleased(version, image)
	return reconcile.UserError{Reason: problem.Reason, Message: problem.Message}
}

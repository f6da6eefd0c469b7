package talos

import (
	"context"
	"errors"
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
	if image := spec.TypedSpec().Image; image != "" {
		var refused reconcile.UserError
		if err := pullImage(ctx, c, common.ContainerdNamespace_NS_SYSTEM, version, image); errors.As(err, &refused) {
			return refused
		}
	}
	return nil
}

// pullImage has a node pull the image of a version of Kubernetes. It returns a UserError if the registry does not
// have the image, and a WaitError if it is not there yet, with Requeue if the node has not answered in time. Such a
// node keeps what it has pulled, so another call continues.
func pullImage(ctx context.Context, c *client.Client, namespace common.ContainerdNamespace, version, image string) error {
	err := c.ImagePull(ctx, namespace, image) //nolint:staticcheck // its successor is not there before 1.13
	reason := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.OK, codes.Unimplemented:
		return nil
	case codes.DeadlineExceeded:
		return reconcile.WaitError{Reason: "Upgrading", Message: "it pulls " + image, Requeue: true}
	case codes.NotFound:
		if !versions.IsReleased(version) {
			problem := versions.Unreleased(version, image)
			return reconcile.UserError{Reason: problem.Reason, Message: problem.Message}
		}
		return reconcile.UserError{Reason: "UpgradeRefused", Message: fmt.Sprintf("its registry does not have %s: %s", image, reason)}
	default:
		return reconcile.WaitError{Reason: "Upgrading", Message: fmt.Sprintf("it cannot pull %s yet: %s", image, reason)}
	}
}

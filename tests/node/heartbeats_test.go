package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// heartbeatInterval is that of kubelets. kube-controller-manager waits for four of them.
const heartbeatInterval = 10 * time.Second

// sendHeartbeats renews the Leases of nodes that have no kubelet until ctx ends, so that they stay Ready.
func sendHeartbeats(ctx context.Context, kubeconfig string, nodes ...string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.Timeout = heartbeatInterval
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	renew := func() (errs error) {
		for _, node := range nodes {
			errs = errors.Join(errs, renewLease(ctx, client, node))
		}
		return errs
	}
	if err := renew(); err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(heartbeatInterval):
				_ = renew() // while the API server is down, as a kubelet does
			}
		}
	}()
	return nil
}

func renewLease(ctx context.Context, client kubernetes.Interface, node string) error {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, seconds := metav1.NowMicro(), int32(4*heartbeatInterval/time.Second)
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	return err
}

package kubevirt

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Guests implements hypervisor.GuestLister.
func (k *Hypervisor) Guests(ctx context.Context) ([]v1alpha1.Orphan, error) {
	var guests []v1alpha1.Orphan
	page := kube.Page{Limit: pageSize, Selector: v1alpha1.LabelManagedBy + "=" + managedBy}
	err := k.guests.EachMetadata(ctx, virtualMachines, page, func(vm *metav1.PartialObjectMetadata) {
		if uid := vm.Annotations[v1alpha1.AnnotationUID]; uid != "" && vm.DeletionTimestamp == nil {
			guests = append(guests, v1alpha1.Orphan{ID: vm.Namespace + "/" + vm.Name, UID: uid})
		}
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil, reconcile.UserError{Reason: "PermissionDenied", Message: "the user may not list virtual machines: grant it list on virtualmachines.kubevirt.io in all namespaces"}
	case err != nil:
		return nil, err
	}
	return guests, nil
}

// RemovalCommand implements hypervisor.GuestLister.
func (k *Hypervisor) RemovalCommand(id string) string {
	namespace, name, _ := strings.Cut(id, "/")
	return fmt.Sprintf("in the cluster of KubeVirt: kubectl --namespace %s delete virtualmachine %s", namespace, name)
}

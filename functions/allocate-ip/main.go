// Allocate-ip gives the interfaces of NetworkConfigurations static addresses:
// layer 2 of the stack, for networks whose ipAllocation is static.
package main

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

func main() {
	events.Run(name, func() (events.Handler, error) {
		client, err := kube.Connect(name, v1alpha1.AddToScheme, v1alpha2.AddToScheme, kube.Events, leases)
		if err != nil {
			return nil, err
		}
		sender := events.NewSender(client.BrokerURL)
		f := &function{kube: client, leases: &leaseStore{kube: client, now: time.Now}, sender: sender, now: time.Now}
		return sender.Require(f.handle), nil
	})
}

const name = "allocate-ip"

func leases(scheme *runtime.Scheme) error {
	return kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})(scheme)
}

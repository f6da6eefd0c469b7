// Resync sends an event for every object that needs a reconcile. It repairs the loss of
// events and replies, and deliveries that ended when a function crashed.
package main

import (
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

const name = "resync"

func main() {
	events.Run(name, func() (events.Handler, error) {
		client, err := kube.Connect(name, v1alpha1.AddToScheme, v1alpha2.AddToScheme,
			kube.Kinds(corev1.SchemeGroupVersion, &corev1.ConfigMap{}), kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}))
		if err != nil {
			return nil, err
		}
		sender := events.NewSender(client.BrokerURL)
		f := &function{api: client, sender: sender, now: time.Now, namespace: kube.Namespace(os.Getenv)}
		return sender.Require(f.handle), nil
	})
}

// Provision-network makes the network segment of each NetworkNamespace: layer 1
// of the stack.
package main

import (
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/networkpool"
	"github.com/vitistack/stack/functions/internal/wire"
)

const (
	name = "provision-network"
	// calm is how long to wait for more machines before their addresses are counted.
	calm = 2 * time.Second
)

func main() {
	events.Run(name, func() (events.Handler, error) {
		client, err := kube.Connect(name, kinds...)
		if err != nil {
			return nil, err
		}
		shared, err := isShared(os.Getenv)
		if err != nil {
			return nil, err
		}
		sender := events.NewSender(client.BrokerURL)
		e := environment{getenv: wire.Mounted(os.Getenv), secret: client.Secrets(defaultTimeout)}
		f := &function{
			kube: client, sources: e.sources(), sender: sender, now: time.Now, datacenters: e.datacenters(), optionalPools: networkpool.Optional(os.Getenv), pause: calm,
			namespace: kube.Namespace(os.Getenv), shared: shared,
		}
		return sender.Require(f.handle), nil
	})
}

var kinds = []func(*runtime.Scheme) error{
	v1alpha1.AddToScheme, v1alpha2.AddToScheme,
	kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{}, &corev1.Namespace{}, &corev1.ConfigMap{}),
}

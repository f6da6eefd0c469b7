// Kea-reserve gives the interfaces of NetworkConfigurations reservations in ISC
// Kea: layer 2 of the stack, for networks whose ipAllocation is dhcp.
package main

import (
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

const name = "kea-reserve"

func main() {
	events.Run(name, func() (events.Handler, error) {
		getenv := httpclient.Mounted(os.Getenv)
		settings, err := readSettings(getenv)
		if err != nil {
			return nil, err
		}
		client, err := kube.Connect(name, kinds...)
		if err != nil {
			return nil, err
		}
		sender := events.NewSender(client.BrokerURL)
		reporter := backendhealth.New(client, settings.namespace)
		controls, err := settings.connect(getenv, client.Secrets(settings.timeout), publishTo(reporter))
		if err != nil {
			return nil, err
		}
		f := &function{
			kube: client, sender: sender, clients: controls, reporter: reporter, now: time.Now,
			lock:    kea.NewLock(client, settings.namespace, time.Now),
			classes: settings.classes, allowed: settings.allowed, strict: settings.strict,
			namespace: settings.namespace, shared: settings.shared,
		}
		return sender.Require(f.handle), nil
	})
}

var kinds = []func(*runtime.Scheme) error{
	v1alpha1.AddToScheme, v1alpha2.AddToScheme,
	kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{}, &corev1.ConfigMap{}),
	kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}),
}

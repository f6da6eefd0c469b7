// Resync sends an event for every object that needs a reconcile. It repairs the loss of
// events and replies, and deliveries that ended when a function crashed.
package main

import (
	"fmt"
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
		grace, err := readGrace(os.Getenv)
		if err != nil {
			return nil, err
		}
		sender := events.NewSender(client.BrokerURL)
		f := &function{api: client, sender: sender, now: time.Now, namespace: kube.Namespace(os.Getenv), grace: grace}
		return sender.Require(f.handle), nil
	})
}

const (
	defaultPeriod = time.Minute
	// graceShare is the part of the period for which an event may be in transit, as for the gateway.
	graceShare = 3
)

// readGrace returns the grace for the period RESYNC_PERIOD in which the gateway requests each due object once.
func readGrace(getenv func(string) string) (time.Duration, error) {
	text := getenv("RESYNC_PERIOD")
	if text == "" {
		return defaultPeriod / graceShare, nil
	}
	period, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("read RESYNC_PERIOD: %w", err)
	}
	return period / graceShare, nil
}

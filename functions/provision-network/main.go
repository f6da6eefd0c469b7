// Provision-network provides the network segment of each NetworkNamespace: layer 1 of the
// stack.
package main

import (
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/internal/kube"
)

const (
	name = "provision-network"
	// countPause is how long a delivery waits for more changes before it counts again.
	countPause = 2 * time.Second
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
		namespace := kube.Namespace(os.Getenv)
		reporter := backendhealth.New(client, namespace)
		c := config{getenv: httpclient.Mounted(os.Getenv), secret: client.Secrets(defaultTimeout), reporter: reporter}
		f := &function{
			kube: client, providers: c.providers(), sender: sender, now: time.Now, datacenters: plan.ParseDatacenters(os.Getenv(plan.DatacentersVariable)), optionalPools: plan.ArePoolsOptional(os.Getenv(plan.PoolsVariable)), pause: countPause,
			namespace: namespace, sharedNetBox: shared, reporter: reporter,
		}
		return sender.Require(f.handle), nil
	}, events.WithConcurrent(userKinds...))
}

// userKinds are the kinds that use addresses. A delivery about them counts for all of its namespace, and may wait to count
// again, while no other delivery about the same object has to wait for it.
var userKinds = []string{"NetworkConfiguration", "IPAllocation", "KubernetesCluster"}

var kinds = []func(*runtime.Scheme) error{
	v1alpha1.AddToScheme, v1alpha2.AddToScheme,
	kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{}, &corev1.Namespace{}, &corev1.ConfigMap{}),
}

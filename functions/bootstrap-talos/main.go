// Bootstrap-talos turns each KubernetesCluster into machines that run Talos Linux,
// and those into a Kubernetes cluster: layer 4 of the stack.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/bootstrap-talos/addonsource"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
)

func main() {
	events.Run(plan.FunctionName, func() (events.Handler, error) {
		client, err := kube.Connect(plan.FunctionName, v1alpha1.AddToScheme, v1alpha2.AddToScheme, core)
		if err != nil {
			return nil, err
		}
		endpoint, err := talos.CheckEventSink(os.Getenv(eventSinkVariable))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", eventSinkVariable, err)
		}
		f := newFunction(client, functionOptions{
			manifestsDir: os.Getenv("RESULTS_PATH"),
			talosVersion: envOr("TALOS_VERSION", plan.DefaultTalosVersion),
			images: talos.Images{
				Factory:   strings.TrimSuffix(envOr("IMAGE_FACTORY", talos.DefaultFactory), "/"),
				Schematic: envOr("TALOS_SCHEMATIC", talos.DefaultSchematic),
			},
			eventSink:  endpoint,
			addonHosts: addonsource.New(os.Getenv(addons.HostsVariable)),
			now:        time.Now,
		})
		return f.handle, nil
	}, events.WithConcurrent(concurrentKind))
}

// eventSinkVariable is the variable with the address at which nodes reach the gateway, which receives their events.
const eventSinkVariable = "NODE_EVENTS_ENDPOINT"

// concurrentKind is the kind whose deliveries sharedReconciles serializes, so that a change of a cluster ends the polling of its nodes.
const concurrentKind = "KubernetesCluster"

var core = kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Namespace{})

func envOr(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

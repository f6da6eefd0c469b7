package component

import (
	"context"
	"flag"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

const (
	workers           = 5
	discoveryInterval = 10 * time.Second // how soon the garbage collector sees a new CRD
	syncTimeout       = 30 * time.Second
)

// Controllers runs the two controllers that deletions require, the garbage collector (owner references) and the namespace controller, and the one that
// aggregates ClusterRoles. There is no leader election, so they write nothing when idle. It returns when ctx ends.
func Controllers(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("kube-controllers", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "kubeconfig", "file with the address and credentials of the API server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", *kubeconfig, err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("build the Kubernetes client: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("build the metadata client: %w", err)
	}

	typed := informers.NewSharedInformerFactory(client, 0)
	untyped := metadatainformer.NewSharedInformerFactory(objects, 0)
	started := make(chan struct{})
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, objects,
		restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		garbagecollector.DefaultIgnoredResources(), informerfactory.NewInformerFactory(typed, untyped), started)
	if err != nil {
		return fmt.Errorf("build the garbage collector: %w", err)
	}
	namespaces := namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		typed.Core().V1().Namespaces(), 0, corev1.FinalizerKubernetes)
	roles := clusterroleaggregation.NewClusterRoleAggregation(typed.Rbac().V1().ClusterRoles(), client.RbacV1())

	typed.Start(ctx.Done())
	untyped.Start(ctx.Done())
	close(started)
	go collector.Run(ctx, workers, syncTimeout)
	go collector.Sync(ctx, client.Discovery(), discoveryInterval)
	go roles.Run(ctx, 1)
	namespaces.Run(ctx, workers)
	return nil
}

// Ingress is a Knative ingress: one pod that is both the controller of KIngress objects and their data plane. It has the
// names of Kourier, whose Envoy cannot be built from Go modules. Like Kourier it sends requests to the addresses behind a
// Service, and not to its ClusterIP.
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// stopTimeout is the time that open requests get at the end.
const stopTimeout = 20 * time.Second

func main() {
	address := flag.String("address", ":8081", "`address` at which requests are taken")
	service := flag.String("service", "kourier-internal.kourier-system.svc.cluster.local", "`name` of the Service in front of this pod")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *address, *service); err != nil {
		slog.Error("Ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address, service string) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	endpoints := informers.NewSharedInformerFactory(typed, 0)
	slices := endpoints.Discovery().V1().EndpointSlices().Lister()
	endpoints.Start(ctx.Done())
	endpoints.WaitForCacheSync(ctx.Done())

	objects := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	kingresses := objects.ForResource(resource)
	c := &controller{client: client, service: service, lister: kingresses.Lister(), changed: make(chan struct{}, 1)}
	changed := func(any) { c.enqueue() }
	if _, err := kingresses.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed, UpdateFunc: func(_, object any) { changed(object) },
	}); err != nil {
		return err
	}
	objects.Start(ctx.Done())
	objects.WaitForCacheSync(ctx.Done())
	go c.run(ctx)
	return serve(ctx, address, &dataPlane{routes: c.routes, endpoints: slices, transport: newTransport()})
}

// serve answers requests by HTTP/1 and by HTTP/2 without TLS until ctx ends, and then the open ones.
func serve(ctx context.Context, address string, handler http.Handler) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Addr: address, Handler: handler, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := server.Shutdown(last)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

var resource = schema.GroupVersionResource{Group: "networking.internal.knative.dev", Version: "v1alpha1", Resource: "ingresses"}

// class is the ingress class of Kourier.
const class = "kourier.ingress.networking.knative.dev"

// kingress has the fields of Ingress in networking.internal.knative.dev/v1alpha1 that this ingress reads.
type kingress struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Rules []struct {
			Hosts []string `json:"hosts"`
			HTTP  rule     `json:"http"`
		} `json:"rules"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
		Conditions         []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// rule has the paths of a host. The first that matches a request is used.
type rule struct {
	Paths []path `json:"paths"`
}

type path struct {
	Path    string `json:"path"`
	Headers map[string]struct {
		Exact string `json:"exact"`
	} `json:"headers"`
	RewriteHost   string            `json:"rewriteHost"`
	AppendHeaders map[string]string `json:"appendHeaders"`
	Splits        []split           `json:"splits"`
}

// split is the share of a Service, in percent.
type split struct {
	Namespace     string            `json:"serviceNamespace"`
	Name          string            `json:"serviceName"`
	Percent       int               `json:"percent"`
	AppendHeaders map[string]string `json:"appendHeaders"`
}

// controller turns KIngress objects into routes, and reports them as ready.
type controller struct {
	client  dynamic.Interface
	service string
	lister  cache.GenericLister
	changed chan struct{}
	table   atomic.Pointer[map[string]rule]
}

// routes returns the rule of a host.
func (c *controller) routes(host string) (rule, bool) {
	table := c.table.Load()
	if table == nil {
		return rule{}, false
	}
	found, ok := (*table)[host]
	return found, ok
}

func (c *controller) enqueue() {
	select {
	case c.changed <- struct{}{}:
	default: // the next reconcile reads everything
	}
}

// run reconciles all KIngress objects after each change, until ctx ends.
func (c *controller) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		if err := c.reconcile(ctx); err != nil {
			slog.Error("Reconcile failed", "error", err)
			time.AfterFunc(time.Second, c.enqueue)
		}
	}
}

func (c *controller) reconcile(ctx context.Context) error {
	objects, err := c.lister.List(labels.Everything())
	if err != nil {
		return err
	}
	var all []kingress
	table := map[string]rule{}
	for _, object := range objects {
		var k kingress
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, &k); err != nil {
			return err
		}
		if k.Metadata.Annotations["networking.knative.dev/ingress.class"] != class || k.Metadata.DeletionTimestamp != nil {
			continue
		}
		all = append(all, k)
		for _, rule := range k.Spec.Rules {
			for _, host := range rule.Hosts {
				table[host] = rule.HTTP
			}
		}
	}
	c.table.Store(&table)
	for _, k := range all {
		if err := c.report(ctx, k); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// report writes the status of a KIngress whose routes are in use, unless it is written.
func (c *controller) report(ctx context.Context, k kingress) error {
	if k.isReady() {
		return nil
	}
	now := metav1.Now()
	var conditions []any
	for _, name := range []string{"LoadBalancerReady", "NetworkConfigured", "Ready"} {
		conditions = append(conditions, map[string]any{"type": name, "status": "True", "lastTransitionTime": now})
	}
	balancer := map[string]any{"ingress": []any{map[string]any{"domainInternal": c.service}}}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"observedGeneration": k.Metadata.Generation, "conditions": conditions, "privateLoadBalancer": balancer, "publicLoadBalancer": balancer,
	}})
	if err != nil {
		return err
	}
	_, err = c.client.Resource(resource).Namespace(k.Metadata.Namespace).Patch(ctx, k.Metadata.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// isReady reports whether the status says that the present generation is ready.
func (k kingress) isReady() bool {
	if k.Status.ObservedGeneration != k.Metadata.Generation {
		return false
	}
	for _, condition := range k.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True"
		}
	}
	return false
}

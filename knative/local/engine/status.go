package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/knative/local/manifest"
)

var (
	brokers      = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "brokers"}
	triggers     = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"}
	sources      = schema.GroupVersionResource{Group: "sources.knative.dev", Version: "v1", Resource: "apiserversources"}
	pings        = schema.GroupVersionResource{Group: "sources.knative.dev", Version: "v1", Resource: "pingsources"}
	sinkBindings = schema.GroupVersionResource{Group: "sources.knative.dev", Version: "v1", Resource: "sinkbindings"}
	services     = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
)

// condition is a condition of Knative, without the time of its last transition.
type condition struct {
	kind, status, reason, message string
}

// ready returns conditions that are all True, including Ready.
func ready(others ...string) []condition {
	conditions := []condition{{kind: "Ready", status: "True"}}
	for _, kind := range others {
		conditions = append(conditions, condition{kind: kind, status: "True"})
	}
	return conditions
}

// notReady returns the conditions of an object with an error.
func notReady(reason string, err error) []condition {
	return []condition{{kind: "Ready", status: "False", reason: reason, message: err.Error()}}
}

// setStatus sets the fields of an object's status and exactly these conditions, and writes only a difference. An object that does not exist is no error.
func (c *cluster) setStatus(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, fields map[string]any, conditions []condition) error {
	client := c.dynamic.Resource(gvr).Namespace(namespace)
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s %s/%s: %w", gvr.Resource, namespace, name, err)
	}
	status, changed := mergeStatus(object, fields, conditions, time.Now())
	if !changed {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode the status of %s %s/%s: %w", gvr.Resource, namespace, name, err)
	}
	_, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of %s %s/%s: %w", gvr.Resource, namespace, name, err)
	}
	return nil
}

// mergeStatus returns the fields of the status to write, and whether they differ from those of the object. A condition with the same status keeps its
// transition time.
func mergeStatus(object *unstructured.Unstructured, fields map[string]any, conditions []condition, now time.Time) (map[string]any, bool) {
	current, _, _ := unstructured.NestedMap(object.Object, "status")
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	times := map[string]any{}
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			times[fmt.Sprint(c["type"], " ", c["status"])] = c["lastTransitionTime"]
		}
	}
	wanted := []any{}
	for _, c := range conditions {
		item := map[string]any{"type": c.kind, "status": c.status, "lastTransitionTime": now.UTC().Format(time.RFC3339)}
		if before, ok := times[c.kind+" "+c.status]; ok {
			item["lastTransitionTime"] = before
		}
		if c.reason != "" {
			item["reason"], item["message"] = c.reason, c.message
		}
		wanted = append(wanted, item)
	}
	status := map[string]any{"observedGeneration": object.GetGeneration(), "conditions": wanted}
	for name, value := range fields {
		status[name] = value
	}
	for name, value := range status {
		if !reflect.DeepEqual(current[name], value) {
			return status, true
		}
	}
	return status, false
}

// address returns the status of an addressable object.
func address(url string) map[string]any {
	return map[string]any{"address": map[string]any{"name": "http", "url": url}}
}

// sinkStatus returns a function that writes the status of an object with a sink. fault is why it
// cannot send.
func (e *engine) sinkStatus(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, sink *url.URL, fault error) func() error {
	return func() error {
		if fault != nil {
			return e.cluster.setStatus(ctx, gvr, namespace, name, nil, notReady("NotFound", fault))
		}
		return e.cluster.setStatus(ctx, gvr, namespace, name, map[string]any{"sinkUri": sink.String()}, ready("SinkProvided"))
	}
}

// writeStatuses writes the status of every Knative object: ready, with its address.
func (e *engine) writeStatuses(ctx context.Context) error {
	var writes []func() error
	write := func(f func() error) { writes = append(writes, f) }
	for _, o := range e.topology.Brokers {
		u, err := e.addresses.resolve(reference(brokerRef(o.Namespace, o.Name)), o.Namespace)
		if err != nil {
			return err
		}
		write(func() error {
			return e.cluster.setStatus(ctx, brokers, o.Namespace, o.Name, address(u.String()), ready("Addressable", "FilterReady", "IngressReady"))
		})
	}
	for _, o := range e.topology.Functions {
		u := urlOf(e.listeners[o.Name])
		fields := address(u)
		fields["url"], fields["latestCreatedRevisionName"], fields["latestReadyRevisionName"] = u, revision(o.Name), revision(o.Name)
		write(func() error {
			return e.cluster.setStatus(ctx, services, o.Namespace, o.Name, fields, ready("ConfigurationsReady", "RoutesReady"))
		})
	}
	writes = append(writes, e.sourceStatuses(ctx)...)
	return each(writes, func(f func() error) error { return f() })
}

func (e *engine) sourceStatuses(ctx context.Context) []func() error {
	var writes []func() error
	for _, o := range e.topology.Sources {
		sink, err := e.addresses.resolveSink(o.Spec.Sink, o.Namespace)
		writes = append(writes, e.sinkStatus(ctx, sources, o.Namespace, o.Name, sink, err))
	}
	for _, o := range e.topology.Pings {
		sink, err := e.addresses.resolveSink(o.Spec.Sink, o.Namespace)
		writes = append(writes, e.sinkStatus(ctx, pings, o.Namespace, o.Name, sink, err))
	}
	for _, o := range e.topology.Bindings {
		sink, err := e.addresses.resolveSink(o.Spec.Sink, o.Namespace)
		if err == nil && !slices.ContainsFunc(slices.Concat(e.topology.Functions, e.topology.Deployments), func(p manifest.Program) bool {
			ok, err := bound(p, o.Namespace, o.Spec.Subject)
			return ok && err == nil
		}) {
			err = errors.New("the subject does not exist")
		}
		writes = append(writes, e.sinkStatus(ctx, sinkBindings, o.Namespace, o.Name, sink, err))
	}
	return writes
}

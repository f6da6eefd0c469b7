package manifest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/eventing/pkg/apis/config"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/eventing/pkg/apis/feature"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	"knative.dev/pkg/apis"
)

// Topology is a set of manifests, sorted by how the engine handles them.
type Topology struct {
	Documents   []Document // all
	Brokers     []*eventingv1.Broker
	Triggers    []*eventingv1.Trigger
	Sources     []*sourcesv1.ApiServerSource
	Pings       []*sourcesv1.PingSource
	Bindings    []*sourcesv1.SinkBinding
	Functions   []Program // from Knative Services
	Deployments []Program
	Services    []*corev1.Service
}

// supported are the kinds of Knative that the engine handles.
const supported = "Broker, Trigger, ApiServerSource, PingSource, SinkBinding and Knative Service"

// knativeGroup reports whether Knative defines the kinds of an API group.
func knativeGroup(group string) bool {
	return group == "knative.dev" || strings.HasSuffix(group, ".knative.dev")
}

// NewTopology sorts documents. It returns an error with file and document about unsupported kinds of Knative, unknown fields in supported ones, and
// objects that Knative's admission webhook would reject.
func NewTopology(documents []Document) (*Topology, error) {
	ctx, err := knativeDefaults()
	if err != nil {
		return nil, err
	}
	t := &Topology{Documents: documents}
	var errs []error
	for _, d := range documents {
		if err := t.add(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", d, err))
		}
	}
	return t, errors.Join(errs...)
}

// brokerDefaults is the ConfigMap config-br-defaults of a new installation of Knative.
const brokerDefaults = `
clusterDefault:
  brokerClass: MTChannelBasedBroker
  apiVersion: v1
  kind: ConfigMap
  name: config-br-default-channel
  namespace: knative-eventing
  delivery:
    retry: 10
    backoffPolicy: exponential
    backoffDelay: PT0.2S
`

// knativeDefaults are the defaults of Knative's admission webhook in a new installation.
func knativeDefaults() (context.Context, error) {
	flags, err := feature.NewFlagsConfigFromMap(nil)
	if err != nil {
		return nil, fmt.Errorf("read the default features of Knative: %w", err)
	}
	defaults, err := config.NewDefaultsConfigFromMap(map[string]string{config.BrokerDefaultsKey: brokerDefaults})
	if err != nil {
		return nil, fmt.Errorf("read the Broker defaults of Knative: %w", err)
	}
	return config.ToContext(feature.ToContext(context.Background(), flags), &config.Config{Defaults: defaults}), nil
}

func (t *Topology) add(ctx context.Context, d Document) error {
	switch gvk := d.Object.GroupVersionKind(); gvk {
	case eventingv1.SchemeGroupVersion.WithKind("Broker"):
		return add(ctx, d, &eventingv1.Broker{}, &t.Brokers)
	case eventingv1.SchemeGroupVersion.WithKind("Trigger"):
		return add(ctx, d, &eventingv1.Trigger{}, &t.Triggers)
	case sourcesv1.SchemeGroupVersion.WithKind("ApiServerSource"):
		return add(ctx, d, &sourcesv1.ApiServerSource{}, &t.Sources)
	case sourcesv1.SchemeGroupVersion.WithKind("PingSource"):
		return add(ctx, d, &sourcesv1.PingSource{}, &t.Pings)
	case sourcesv1.SchemeGroupVersion.WithKind("SinkBinding"):
		return add(ctx, d, &sourcesv1.SinkBinding{}, &t.Bindings)
	case schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}:
		program, err := functionProgram(d.Object)
		t.Functions = append(t.Functions, program)
		return err
	case appsv1.SchemeGroupVersion.WithKind("Deployment"):
		program, err := deploymentProgram(d.Object)
		t.Deployments = append(t.Deployments, program)
		return err
	case corev1.SchemeGroupVersion.WithKind("Service"):
		service := &corev1.Service{}
		t.Services = append(t.Services, service)
		return decode(d.Object, service)
	default:
		if knativeGroup(gvk.Group) {
			return fmt.Errorf("the local engine does not carry out %s of %s; it knows %s", gvk.Kind, gvk.GroupVersion(), supported)
		}
		return nil
	}
}

// knative is the interface of Knative's types.
type knative interface {
	apis.Defaultable
	apis.Validatable
}

func add[T knative](ctx context.Context, d Document, object T, list *[]T) error {
	if err := decode(d.Object, object); err != nil {
		return err
	}
	object.SetDefaults(ctx)
	if err := object.Validate(ctx); err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	*list = append(*list, object)
	return nil
}

// decode returns an error about fields that the type lacks.
func decode(from *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(from.Object, into, true); err != nil {
		return fmt.Errorf("decode %s: %w", from.GetKind(), err)
	}
	return nil
}

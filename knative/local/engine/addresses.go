package engine

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/tracker"

	"github.com/vitistack/stack/knative/local/manifest"
)

// addresses has the local addresses of the objects that events are sent to.
type addresses struct {
	ingress *url.URL // instead of a Broker, for its senders; nil: the Broker itself

	mu   sync.RWMutex
	urls map[duckv1.KReference]*url.URL
}

func newAddresses(ingress *url.URL) *addresses {
	return &addresses{ingress: ingress, urls: map[duckv1.KReference]*url.URL{}}
}

func brokerRef(namespace, name string) duckv1.KReference {
	return duckv1.KReference{APIVersion: "eventing.knative.dev/v1", Kind: "Broker", Namespace: namespace, Name: name}
}

func functionRef(namespace, name string) duckv1.KReference {
	return duckv1.KReference{APIVersion: "serving.knative.dev/v1", Kind: "Service", Namespace: namespace, Name: name}
}

func serviceRef(namespace, name string) duckv1.KReference {
	return duckv1.KReference{APIVersion: "v1", Kind: "Service", Namespace: namespace, Name: name}
}

func (a *addresses) set(ref duckv1.KReference, u *url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.urls[ref] = u
}

// services are the URLs of the Services, by namespace and name.
func (a *addresses) services() map[string]string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	urls := map[string]string{}
	for ref, u := range a.urls {
		if ref == serviceRef(ref.Namespace, ref.Name) {
			urls[ref.Namespace+"/"+ref.Name] = u.String()
		}
	}
	return urls
}

// in replaces URLs of Services in variables. In a cluster their names are resolved by DNS.
func (a *addresses) in(env map[string]string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for variable, value := range env {
		u, err := url.Parse(value)
		if err != nil || u.Scheme != "http" || u.Port() != "" {
			continue
		}
		host := strings.TrimSuffix(strings.TrimSuffix(u.Host, ".cluster.local"), ".svc")
		name, namespace, _ := strings.Cut(host, ".")
		if here, ok := a.urls[serviceRef(namespace, name)]; ok {
			u.Host = here.Host
			env[variable] = u.String()
		}
	}
}

// resolve is a broker.Resolver: a reference, a URL, or a path relative to a reference.
func (a *addresses) resolve(destination duckv1.Destination, namespace string) (*url.URL, error) {
	if destination.Ref == nil {
		if destination.URI == nil || !destination.URI.URL().IsAbs() {
			return nil, errors.New("it has neither a reference nor an absolute URI")
		}
		return destination.URI.URL(), nil
	}
	ref := duckv1.KReference{
		APIVersion: destination.Ref.APIVersion, Kind: destination.Ref.Kind,
		Namespace: destination.Ref.Namespace, Name: destination.Ref.Name,
	}
	if ref.Namespace == "" {
		ref.Namespace = namespace
	}
	a.mu.RLock()
	base, ok := a.urls[ref]
	a.mu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("%s %s/%s of %s does not run here; the local engine knows Brokers, Knative Services, and Services of a Deployment with a port 80",
			ref.Kind, ref.Namespace, ref.Name, ref.APIVersion)
	}
	if destination.URI == nil {
		return base, nil
	}
	return base.ResolveReference(destination.URI.URL()), nil
}

// resolveSink is resolve for senders outside of the Broker.
func (a *addresses) resolveSink(destination duckv1.Destination, namespace string) (*url.URL, error) {
	u, err := a.resolve(destination, namespace)
	if err == nil && a.ingress != nil && destination.Ref != nil && destination.Ref.Kind == "Broker" {
		return a.ingress, nil
	}
	return u, err
}

// sinkOf returns the sink of the program in the SinkBindings, or nil.
func (a *addresses) sinkOf(program manifest.Program, bindings []*sourcesv1.SinkBinding) (*url.URL, error) {
	for _, binding := range bindings {
		ok, err := bound(program, binding.Namespace, binding.Spec.Subject)
		if err != nil {
			return nil, fmt.Errorf("read the subject of SinkBinding %s/%s: %w", binding.Namespace, binding.Name, err)
		}
		if !ok {
			continue
		}
		u, err := a.resolveSink(binding.Spec.Sink, binding.Namespace)
		if err != nil {
			return nil, fmt.Errorf("resolve the sink of SinkBinding %s/%s: %w", binding.Namespace, binding.Name, err)
		}
		return u, nil
	}
	return nil, nil
}

// bound reports whether the program's object is the subject, which has a name or a label selector.
func bound(program manifest.Program, namespace string, subject tracker.Reference) (bool, error) {
	if subject.Namespace != "" {
		namespace = subject.Namespace
	}
	apiVersion, kind := program.Kind.ToAPIVersionAndKind()
	if subject.APIVersion != apiVersion || subject.Kind != kind || namespace != program.Namespace {
		return false, nil
	}
	if subject.Name != "" || subject.Selector == nil {
		return subject.Name == program.Name, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(subject.Selector)
	if err != nil {
		return false, fmt.Errorf("parse the selector: %w", err)
	}
	return selector.Matches(labels.Set(program.Labels)), nil
}

func reference(ref duckv1.KReference) duckv1.Destination { return duckv1.Destination{Ref: &ref} }

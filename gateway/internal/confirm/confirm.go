// Package confirm compares what functions request of external systems with the Kubernetes API. Every client that reaches the Broker can
// send such a request, so the gateway signs and delivers only what the API shows.
package confirm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Confirmer confirms requests of functions.
type Confirmer struct {
	// Object returns an object as it is now, or nil if there is none: apiserver.Client.Object.
	Object func(ctx context.Context, apiVersion, resource, namespace, name string) (*unstructured.Unstructured, error)
	// Networks returns the NetworkNamespaces, which may be behind the API, and false until all are known.
	Networks func() (*inventory.Collection, bool)
}

// Refusal is the error of an event that does not agree with the Kubernetes API. A repetition leads to the same error.
type Refusal struct{ text string }

// Error says what differs.
func (r Refusal) Error() string { return r.text }

// Refuse returns a Refusal with a text.
func Refuse(format string, args ...any) error { return Refusal{fmt.Sprintf(format, args...)} }

// Confirm returns an event of a type that events.IsRequest knows as the function sends it, without anything that the event has beside that. The error is a
// Refusal if the function has not sent the request, or if the request is obsolete. After any other error a repetition may be confirmed.
func (c *Confirmer) Confirm(ctx context.Context, in event.Event) (event.Event, error) {
	switch in.Type() {
	case events.TypeWorkorderRequested:
		return c.confirmWorkorder(ctx, in)
	case events.TypeNetworkRequested:
		return c.confirmNetworkRequest(ctx, in)
	default:
		return c.confirmRelease(ctx, in)
	}
}

// request is what the requests of one function have in common.
type request struct {
	function, apiVersion, kind, resource string
}

// check returns a Refusal unless an event has the source, the subject and an identifier that the function gives a request about the
// object. The identifier must begin with id, so that no other request of the function counts as a repetition of this one.
func (r request) check(in event.Event, o events.Object, id string) error {
	switch ref := r.ref(o); {
	case o.UID == "":
		return Refuse("its data has no uid")
	case in.Source() != "/functions/"+r.function:
		return Refuse("its source is %q, and %s sends such events with the source /functions/%s", in.Source(), r.function, r.function)
	case in.Subject() != ref.Path():
		return Refuse("its subject is %q, and its data names %s %s/%s", in.Subject(), r.kind, o.Namespace, o.Name)
	case in.ID() != id && !strings.HasPrefix(in.ID(), id+"."):
		return Refuse("its id %q does not begin with %s", in.ID(), id)
	default:
		return nil
	}
}

func (r request) ref(o events.Object) events.Ref {
	return events.Ref{APIVersion: r.apiVersion, Kind: r.kind, Namespace: o.Namespace, Name: o.Name}
}

// event returns a request with the identifier, type and time of in.
func (r request) event(in event.Event, o events.Object, data any) (event.Event, error) {
	out := event.New()
	out.SetID(in.ID())
	out.SetSource("/functions/" + r.function)
	out.SetType(in.Type())
	out.SetTime(in.Time())
	r.ref(o).Set(&out, o.UID)
	if err := out.SetData(event.ApplicationJSON, data); err != nil {
		return out, fmt.Errorf("write event %s: %w", in.ID(), err)
	}
	return out, nil
}

// read reads an object as it is now, and reports whether it exists.
func (c *Confirmer) read(ctx context.Context, r request, o events.Object, into any) (bool, error) {
	found, err := c.Object(ctx, r.apiVersion, r.resource, o.Namespace, o.Name)
	if err != nil || found == nil {
		return false, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, into); err != nil {
		return false, fmt.Errorf("read %s %s/%s: %w", r.kind, o.Namespace, o.Name, err)
	}
	return true, nil
}

// decode reads the data of an event.
func decode(in event.Event, into any) error {
	if err := json.Unmarshal(in.Data(), into); err != nil {
		return Refuse("its data is not that of %s", in.Type())
	}
	return nil
}

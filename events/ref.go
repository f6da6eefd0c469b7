package events

import (
	"fmt"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
)

// Ref is the object that an event is about. An event is a hint: read the live
// object and act on that.
type Ref struct {
	APIVersion string
	Kind       string
	Namespace  string
	Name       string
}

// RefOf reads the object out of an event's attributes apiversion, kind,
// namespace and name. Namespace is empty for cluster-scoped objects. An event
// without kind or name is a permanent error.
func RefOf(e event.Event) (Ref, error) {
	ref := Ref{
		APIVersion: extension(e, "apiversion"),
		Kind:       extension(e, "kind"),
		Namespace:  extension(e, "namespace"),
		Name:       extension(e, "name"),
	}
	if ref.Kind == "" || ref.Name == "" {
		return Ref{}, Permanent(fmt.Errorf("read event %s: the attributes kind and name must name an object", e.ID()))
	}
	return ref, nil
}

// UnexpectedEvent returns the Permanent error of a function that has nothing to do for an event about an object.
func UnexpectedEvent(r Ref, function string) error {
	return Permanent(fmt.Errorf("reconcile %s %s/%s: %s has nothing to do for this event: correct the filter of its Trigger", r.Kind, r.Namespace, r.Name, function))
}

// Set writes the object into an event's attributes, so that RefOf finds it and
// Triggers can filter on it. Its subject is the object's path in the API, and
// partitionkey, its UID or else its path, keeps its events in order on brokers
// that partition.
func (r Ref) Set(e *event.Event, uid string) {
	e.SetSubject(r.Path())
	e.SetExtension("apiversion", r.APIVersion)
	e.SetExtension("kind", r.Kind)
	e.SetExtension("namespace", r.Namespace)
	e.SetExtension("name", r.Name)
	if uid == "" {
		uid = r.Path()
	}
	e.SetExtension("partitionkey", uid)
}

// Path is the object's path in the Kubernetes API, in the form that Knative's
// ApiServerSource gives to its subjects.
func (r Ref) Path() string {
	resource := strings.ToLower(r.Kind) + "s"
	if r.Namespace == "" {
		return "/apis/" + r.APIVersion + "/" + resource + "/" + r.Name
	}
	return "/apis/" + r.APIVersion + "/namespaces/" + r.Namespace + "/" + resource + "/" + r.Name
}

// CheckSubject returns a Permanent error if the subject of an event is another object of a namespace than r, in any version of
// its API. By the subject the gateway decides whether a sender that is limited to namespaces may send the event, and accepts no
// other subject from it.
func (r Ref) CheckSubject(e event.Event) error {
	if !strings.Contains(e.Subject(), "/namespaces/") || withoutVersion(e.Subject()) == withoutVersion(r.Path()) {
		return nil
	}
	return Permanent(fmt.Errorf("use event %s: its subject is %s, and the uid in its data is that of %s: send both as in the request", e.ID(), e.Subject(), r.Path()))
}

// withoutVersion removes the version from the path of an object in the Kubernetes API.
func withoutVersion(path string) string {
	group, rest, _ := strings.Cut(strings.TrimPrefix(path, "/apis/"), "/")
	_, rest, _ = strings.Cut(rest, "/")
	return group + "/" + rest
}

func extension(e event.Event, name string) string {
	s, _ := e.Extensions()[name].(string)
	return s
}

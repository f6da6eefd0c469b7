package events

import (
	"encoding/json"

	"github.com/cloudevents/sdk-go/v2/event"
)

// IsChange reports whether an event of a type says that an object was created, changed or
// deleted.
func IsChange(eventType string) bool {
	return eventType == TypeRefUpdate || eventType == TypeUpdate || IsAdd(eventType) || IsDelete(eventType)
}

// IsAdd reports whether an event of a type says that an object was created.
func IsAdd(eventType string) bool { return eventType == TypeRefAdd || eventType == TypeAdd }

// IsDelete reports whether an event of a type says that an object was deleted.
func IsDelete(eventType string) bool { return eventType == TypeRefDelete || eventType == TypeDelete }

// ObjectFrom decodes the object in an event, in its state at the time of the change, and
// reports whether the event has one. Use it only to skip a delivery or to find related
// objects, and decide by the live object: a newer state causes an event of its own, or
// resync finds it.
func ObjectFrom(e event.Event, into any) bool {
	return carries(e.Type()) && json.Unmarshal(e.Data(), into) == nil
}

func carries(eventType string) bool {
	return eventType == TypeAdd || eventType == TypeUpdate || eventType == TypeDelete
}

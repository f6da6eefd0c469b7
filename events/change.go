package events

import (
	"encoding/json"

	"github.com/cloudevents/sdk-go/v2/event"
)

// IsChange tells whether events of a type say that an object has been made, changed
// or deleted.
func IsChange(eventType string) bool {
	return eventType == TypeRefUpdate || eventType == TypeUpdate || IsAdd(eventType) || IsDelete(eventType)
}

// IsAdd tells whether events of a type say that an object has been made.
func IsAdd(eventType string) bool { return eventType == TypeRefAdd || eventType == TypeAdd }

// IsDelete tells whether events of a type say that an object is gone.
func IsDelete(eventType string) bool { return eventType == TypeRefDelete || eventType == TypeDelete }

// Carried decodes the object that an event carries into an object of its type, as it
// was when it changed, and reports whether there is one. Use it only to see that there
// is nothing to do, or where to look: a newer state has an event of its own, or is
// found by resync. What is done is decided by the live object.
func Carried(e event.Event, into any) bool {
	return carries(e.Type()) && json.Unmarshal(e.Data(), into) == nil
}

func carries(eventType string) bool {
	return eventType == TypeAdd || eventType == TypeUpdate || eventType == TypeDelete
}

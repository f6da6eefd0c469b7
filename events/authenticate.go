package events

import (
	"errors"
	"net/http"

	"github.com/vitistack/stack/events/triggerauth"
)

// unauthenticated is the outcome of a delivery without the token of an expected Trigger.
const unauthenticated = "unauthenticated"

// authenticate reports whether the sender of a request may deliver events. If not, it
// answers the request. It does not read the body.
func (r *receiver) authenticate(w http.ResponseWriter, req *http.Request) bool {
	if r.verifier == nil {
		return true
	}
	err := r.verifier.Verify(req.Context(), req.Header["Authorization"])
	if err == nil {
		return true
	}
	name, status := unauthenticated, http.StatusUnauthorized
	if errors.Is(err, triggerauth.ErrUnavailable) {
		name, status = outcome(err)
	} else {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Connection", "close") // or the server would wait for the body
	}
	r.count(name, 0)
	text := brief("the delivery is not authenticated: " + err.Error())
	r.log.Warn("Delivery refused", "outcome", name, "error", text)
	http.Error(w, text, status)
	return false
}

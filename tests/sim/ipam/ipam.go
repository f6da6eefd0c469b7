// Package ipam is an IPAM that provides networks by answering events, as any
// system outside the stack can.
package ipam

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/sim/nam"
)

// Server is the subscriber of a Trigger. It keeps its segments in the books of a
// simulated manager.
type Server struct {
	Books *nam.Server
	Log   *slog.Logger
}

// ServeHTTP replies to a request for a segment with the segment, or with why there
// is none.
func (s Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in, err := cehttp.NewEventFromHTTPRequest(r)
	if err != nil {
		http.Error(w, "send a CloudEvent: "+err.Error(), http.StatusBadRequest)
		return
	}
	switch in.Type() {
	case events.TypeNetworkReleased:
		var data events.NetworkReleased
		if err := json.Unmarshal(in.Data(), &data); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.Books.Forget(data.UID)
		w.WriteHeader(http.StatusAccepted)
	case events.TypeNetworkRequested:
		var data events.NetworkRequested
		if err := json.Unmarshal(in.Data(), &data); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply := s.answer(data)
		reply.SetSource("/ipam")
		reply.SetID(in.ID() + ".ipam")
		reply.SetSubject(in.Subject())
		if err := cehttp.WriteResponseWriter(r.Context(), binding.ToMessage(&reply), http.StatusOK, w); err != nil {
			s.Log.Warn("Cannot reply", "error", err)
		}
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s Server) answer(asked events.NetworkRequested) event.Event {
	reply := event.New()
	length, err := strconv.Atoi(asked.Parameters["prefixLength"])
	if err != nil && asked.Parameters["prefixLength"] != "" {
		return failed(reply, asked, "parameters.prefixLength is a number, such as 24")
	}
	got, err := s.Books.Ensure(asked.UID, nam.Request{
		Name: asked.Name, Namespace: asked.Namespace, DatacenterIdentifier: asked.DatacenterIdentifier,
		IPFamilies: strings.Fields("IPv4 " + map[string]string{"true": "IPv6"}[asked.Parameters["dualStack"]]), IPv4PrefixLength: length,
	})
	if err != nil {
		return failed(reply, asked, err.Error())
	}
	reply.SetType(events.TypeNetworkProvisioned)
	answer := events.NetworkProvisioned{
		UID: asked.UID, Provider: asked.Provider, ID: got.ID, IPv4Prefix: got.IPv4Prefix, IPv4Gateway: got.IPv4Gateway,
		IPv6Prefix: got.IPv6Prefix, IPv6Gateway: got.IPv6Gateway, DNS: got.DNS,
	}
	if got.VLANID != nil {
		answer.VLANID = int32(*got.VLANID)
	}
	_ = reply.SetData(event.ApplicationJSON, answer) // a struct of strings can be encoded
	return reply
}

func failed(reply event.Event, asked events.NetworkRequested, why string) event.Event {
	reply.SetType(events.TypeNetworkFailed)
	_ = reply.SetData(event.ApplicationJSON, events.NetworkFailed{UID: asked.UID, Provider: asked.Provider, Reason: "NoSegment", Message: why})
	return reply
}

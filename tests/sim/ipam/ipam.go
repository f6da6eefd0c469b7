// Package ipam is an IPAM outside of the stack, which provides networks by answering events at the
// gateway.
package ipam

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// Server is the subscriber of a Trigger. It keeps its segments in a simulated manager.
type Server struct {
	Books *nam.Server
	Log   *slog.Logger
	// Gateway is the address for events of other systems, and Token returns the IPAM's credentials
	// there.
	Gateway string
	Token   func(context.Context) (string, error)
}

// ServeHTTP answers a request for a segment with the segment, or with an error. The Broker redelivers
// the request until the gateway accepts the answer.
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
		said := s.answer(data)
		said.SetSource("/ipam")
		said.SetID(in.ID() + ".ipam")
		said.SetSubject(in.Subject())
		if err := s.send(r.Context(), said); err != nil {
			s.Log.Warn("The gateway does not take an answer", "error", err)
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s Server) send(ctx context.Context, e event.Event) error {
	token, err := s.Token(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(s.Gateway, "/")+"/api/v1/events", nil)
	if err != nil {
		return err
	}
	if err := cehttp.WriteRequest(ctx, binding.ToMessage(&e), req); err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusAccepted {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 1<<12))
		return fmt.Errorf("the gateway answers %s: %s", res.Status, said)
	}
	return nil
}

func (s Server) answer(asked events.NetworkRequested) event.Event {
	said := event.New()
	length, err := strconv.Atoi(asked.Parameters["prefixLength"])
	if err != nil && asked.Parameters["prefixLength"] != "" {
		return failed(said, asked, "parameters.prefixLength is a number, such as 24")
	}
	got, err := s.Books.Ensure(asked.UID, nam.Request{
		Name: asked.Name, Namespace: asked.Namespace, DatacenterIdentifier: asked.DatacenterIdentifier,
		IPFamilies: strings.Fields("IPv4 " + map[string]string{"true": "IPv6"}[asked.Parameters["dualStack"]]), IPv4PrefixLength: length,
	})
	if err != nil {
		return failed(said, asked, err.Error())
	}
	said.SetType(events.TypeNetworkProvisioned)
	answer := events.NetworkProvisioned{
		UID: asked.UID, Provider: asked.Provider, ID: got.ID, IPv4Prefix: got.IPv4Prefix, IPv4Gateway: got.IPv4Gateway,
		IPv6Prefix: got.IPv6Prefix, IPv6Gateway: got.IPv6Gateway, DNS: got.DNS,
	}
	if got.VLANID != nil {
		answer.VLANID = int32(*got.VLANID)
	}
	_ = said.SetData(event.ApplicationJSON, answer) // a struct of strings can be encoded
	return said
}

func failed(said event.Event, asked events.NetworkRequested, why string) event.Event {
	said.SetType(events.TypeNetworkFailed)
	_ = said.SetData(event.ApplicationJSON, events.NetworkFailed{UID: asked.UID, Provider: asked.Provider, Reason: "NoSegment", Message: why})
	return said
}

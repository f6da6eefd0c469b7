package events_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/vitistack/stack/events"
)

func TestSend(t *testing.T) {
	ref := events.Ref{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine", Namespace: "default", Name: "vm"}
	var got events.Ref
	url, _, _ := serve(t, func(_ context.Context, in event.Event) (*event.Event, error) {
		var err error
		got, err = events.RefOf(in)
		return nil, err
	})
	t.Setenv("K_SINK", url)
	sender := events.NewSender(nil)
	if err := sender.Send(t.Context(), events.NewReconcileRequest("/functions/resync", ref, "uid-1", "7")); err != nil {
		t.Fatal(err)
	}
	if got != ref {
		t.Errorf("the receiver read %+v, want %+v", got, ref)
	}
}

func TestSendFails(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer refusing.Close()
	t.Setenv("K_SINK", refusing.URL)
	sender := events.NewSender(nil)
	if err := sender.Send(t.Context(), events.NewReconcileRequest("/s", events.Ref{Kind: "K", Name: "n"}, "u", "c")); err == nil {
		t.Error("a rejection by the sink must be an error")
	}
}

// TestSinkIsFound starts without K_SINK, as the first revision of a Knative Service does.
func TestSinkIsFound(t *testing.T) {
	t.Setenv("K_SINK", "")
	arrived := 0
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived++
		w.WriteHeader(http.StatusAccepted)
	}))
	defer broker.Close()
	address, asked, handled := "", 0, 0
	sender := events.NewSender(func(context.Context) (string, error) {
		asked++
		return address, nil
	})
	ref := events.Ref{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine", Namespace: "default", Name: "vm"}
	url, _, _ := serve(t, sender.Require(func(ctx context.Context, _ event.Event) (*event.Event, error) {
		handled++
		return nil, sender.Send(ctx, events.NewReconcileRequest("/functions/test", ref, "uid-1", "7"))
	}))
	for _, step := range []struct {
		reason, address          string
		status, handled, arrived int
	}{
		{reason: "the Broker has no address yet", status: http.StatusServiceUnavailable},
		{reason: "the Broker has an address now", address: broker.URL, status: http.StatusAccepted, handled: 1, arrived: 1},
		{reason: "the address is kept", status: http.StatusAccepted, handled: 2, arrived: 2},
	} {
		address = step.address
		if status := postChange(t, url, ref); status != step.status || handled != step.handled || arrived != step.arrived {
			t.Errorf("%s: got %d, handled %d, arrived %d", step.reason, status, handled, arrived)
		}
	}
	broker.Close()
	if status := postChange(t, url, ref); status != http.StatusServiceUnavailable {
		t.Errorf("a Broker that is down: got %d", status)
	}
	if before := asked; postChange(t, url, ref) != http.StatusServiceUnavailable || asked != before+1 {
		t.Errorf("a failed delivery must not look up the address again: %d requests, then %d", before, asked)
	}
}

// postChange posts a change of an object, and returns the function's status.
func postChange(t *testing.T, url string, ref events.Ref) int {
	t.Helper()
	e := events.NewReconcileRequest("/functions/resync", ref, "uid-1", "1")
	req, err := cehttp.NewHTTPRequestFromEvent(t.Context(), url, e)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

package events_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"

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
	sender, err := events.NewSender()
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Send(t.Context(), events.LookAgain("/functions/resync", ref, "uid-1", "7")); err != nil {
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
	sender, err := events.NewSender()
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Send(t.Context(), events.LookAgain("/s", events.Ref{Kind: "K", Name: "n"}, "u", "c")); err == nil {
		t.Error("a sink that refuses must be an error")
	}
	t.Setenv("K_SINK", "")
	if _, err := events.NewSender(); err == nil {
		t.Error("no sink must be an error at start")
	}
}

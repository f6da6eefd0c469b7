package main

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vitistack/stack/events"
)

// refusing fails the first requests to make a Secret.
type refusing struct {
	http.RoundTripper
	left atomic.Int64
}

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/secrets") && r.left.Add(-1) >= 0 {
		return nil, errors.New("lost")
	}
	return r.RoundTripper.RoundTrip(req)
}

// TestMakerOfKeysFails has the delivery fail that has said that it makes the keys.
// Others leave them to it, and it makes them when its event comes again.
func TestMakerOfKeysFails(t *testing.T) {
	t.Parallel()
	r := &refusing{}
	r.left.Store(1)
	s := setUp(t, standing{
		wrap:   func(next http.RoundTripper) http.RoundTripper { r.RoundTripper = next; return r },
		handle: deaf,
	})
	s.create(s.cluster("shop", 1, 0))
	first, other := lookAt(s.namespace, "shop", "first"), lookAt(s.namespace, "shop", "other")
	if _, err := s.function.handle(t.Context(), first); err == nil {
		t.Fatal("keys were made without a Secret")
	}
	if _, err := s.function.handle(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if message := s.get("shop").Status.Message; message != "waits for the cluster's keys to be made" {
		t.Errorf("another delivery says %q", message)
	}
	if _, err := s.function.handle(t.Context(), first); err != nil && events.IsPermanent(err) {
		t.Fatal(err)
	}
	s.secret("shop-talos-secrets")
}

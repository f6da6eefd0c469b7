package apiserver

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vitistack/stack/events/dsse"
)

// platform is the stack's namespace.
const platform = "vitistack-system"

// signer is a key that functions on this server accept.
type signer struct {
	once sync.Once
	key  ed25519.PrivateKey
	err  error
}

// Sign signs an event as the gateway does, so that functions on this server accept it.
func (s *Server) Sign(t testing.TB, e *event.Event) {
	t.Helper()
	s.signer.once.Do(func() { s.signer.key, s.signer.err = s.newKey() })
	if s.signer.err != nil {
		t.Fatal(s.signer.err)
	}
	if err := dsse.Sign(e, s.signer.key); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) newKey() (ed25519.PrivateKey, error) {
	key, err := dsse.NewKey()
	if err != nil {
		return nil, err
	}
	text, err := dsse.FormatPublic(key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	client, err := s.core()
	if err != nil {
		return nil, err
	}
	namespace := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, platform)
	err = client.Post().Resource("namespaces").Body([]byte(namespace)).Do(context.Background()).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("make namespace %s: %w", platform, err)
	}
	keys, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": dsse.ConfigMapName}, "data": map[string]string{"test": string(text)},
	})
	if err != nil {
		return nil, err
	}
	if err := client.Post().Namespace(platform).Resource("configmaps").Body(keys).Do(context.Background()).Error(); err != nil {
		return nil, fmt.Errorf("make ConfigMap %s: %w", dsse.ConfigMapName, err)
	}
	return key, nil
}

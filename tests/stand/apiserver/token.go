package apiserver

import (
	"encoding/json"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Token returns a token of a ServiceAccount for audiences, and creates the ServiceAccount if necessary. Without audiences it is for the API server
// itself.
func (s *Server) Token(t testing.TB, namespace, account string, audiences ...string) string {
	t.Helper()
	client, err := s.core()
	if err != nil {
		t.Fatal(err)
	}
	accounts := client.Post().Namespace(namespace).Resource("serviceaccounts")
	err = accounts.Body([]byte(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"` + account + `"}}`)).Do(t.Context()).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	request, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"audiences": audiences}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := client.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token").Body(request).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var answer authenticationv1.TokenRequest
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status.Token == "" {
		t.Fatalf("the API server issues no token for %s/%s: %v", namespace, account, err)
	}
	return answer.Status.Token
}

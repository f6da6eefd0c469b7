package kube_test

import (
	"io"
	"net/http"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/functions/internal/kube"
)

func TestPatchJSON(t *testing.T) {
	t.Parallel()
	const tested = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"testing value /metadata/uid failed","reason":"Invalid","code":422}`
	for name, tc := range map[string]struct {
		status       int
		answer       string
		ok           bool
		inapplicable bool
	}{
		"Patched":    {status: http.StatusOK, answer: `{"metadata":{"namespace":"default","name":"a","uid":"1"}}`, ok: true},
		"TestFailed": {status: http.StatusUnprocessableEntity, answer: tested, inapplicable: true},
		"NotFound":   {status: http.StatusNotFound, answer: `{}`, inapplicable: true},
		"Refused":    {status: http.StatusForbidden, answer: `{}`},
		"Failed":     {status: http.StatusInternalServerError, answer: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got, contentType string
			client := leases(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got, contentType = r.Method+" "+r.URL.Path+" "+string(body), r.Header.Get("Content-Type")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.answer))
			})
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
			err := client.PatchJSON(t.Context(), lease, kube.Test("1", "metadata", "uid"), kube.Set("x", "metadata", "annotations", "vitistack.io/a~b"))
			if (err == nil) != tc.ok || kube.Inapplicable(err) != tc.inapplicable {
				t.Errorf("got %v, which is inapplicable: %v", err, kube.Inapplicable(err))
			}
			if tc.ok && lease.UID != "1" {
				t.Errorf("the object was not read back: %+v", lease)
			}
			const want = `PATCH /apis/coordination.k8s.io/v1/namespaces/default/leases/a [{"op":"test","path":"/metadata/uid","value":"1"},{"op":"add","path":"/metadata/annotations/vitistack.io~1a~0b","value":"x"}]`
			if got != want || contentType != "application/json-patch+json" {
				t.Errorf("sent %s as %s, want %s", got, contentType, want)
			}
		})
	}
}

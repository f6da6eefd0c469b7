package kube

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestContinueExpired(t *testing.T) {
	t.Parallel()
	withToken := apierrors.NewResourceExpired("compacted")
	withToken.ErrStatus.Continue = "next"
	for name, tc := range map[string]struct {
		reason  string
		err     error
		next    string
		expired bool
	}{
		"None":      {"the page was read", nil, "", false},
		"Token":     {"the API server returns a token for the present state", fmt.Errorf("list machines: %w", withToken), "next", true},
		"NoToken":   {"the list has to start again", apierrors.NewResourceExpired("compacted"), "", true},
		"Invalid":   {"another version of the API server cannot read the token", apierrors.NewBadRequest("continue key is not valid"), "", true},
		"NotFound":  {"the kind is not installed", apierrors.NewNotFound(schema.GroupResource{}, "x"), "", false},
		"Transport": {"a retry may succeed", errors.New("connection refused"), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if next, expired := ContinueExpired(tc.err); next != tc.next || expired != tc.expired {
				t.Errorf("%s: got %q, %t", tc.reason, next, expired)
			}
		})
	}
}

package e2e

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
)

// env is an engine with helpers for one test.
type env struct {
	*engine.Engine
	t *testing.T
}

// patch applies a merge patch to an object.
func (u *env) patch(resource schema.GroupVersionResource, namespace, name, patch string) {
	u.t.Helper()
	client := u.Client.Resource(resource)
	var err error
	if namespace == "" {
		_, err = client.Patch(u.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	} else {
		_, err = client.Namespace(namespace).Patch(u.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	if err != nil {
		u.t.Fatalf("change %s %s: %v", resource.Resource, name, err)
	}
}

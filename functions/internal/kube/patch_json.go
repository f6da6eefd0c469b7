package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Operation is one operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Test is the operation that has a JSON patch change nothing unless a field has a value.
func Test(value any, path ...string) Operation { return Operation{"test", pointer(path), value} }

// Set is the operation that sets a field, which need not exist, of an object that does.
func Set(value any, path ...string) Operation { return Operation{"add", pointer(path), value} }

// pointer returns the JSON pointer (RFC 6901) of a field.
func pointer(path []string) string {
	var b strings.Builder
	for _, name := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// PatchJSON applies a JSON patch to the object of the name of obj, and replaces obj by the object that the API server has stored. It
// needs no earlier read: Test makes the patch conditional. A test that fails is an error for which Inapplicable is true.
func (c *Client) PatchJSON(ctx context.Context, obj Object, operations ...Operation) error {
	body, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("write patch of %T %s/%s: %w", obj, obj.GetNamespace(), obj.GetName(), err)
	}
	return c.patch(ctx, types.JSONPatchType, "", obj, body)
}

// Inapplicable reports whether PatchJSON has changed nothing because the object does not exist, a test has failed, a
// field is missing, or the API server refuses the result. Read the object to find out which.
func Inapplicable(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) }

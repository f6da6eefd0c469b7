package kube

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// PatchStatus writes the difference between the status of before and of after, on the
// condition that the object has not been written since before was read. Otherwise it returns
// an error for which Conflict is true. Without a difference it sends no request and returns
// false.
func (c *Client) PatchStatus(ctx context.Context, before, after Object) (bool, error) {
	return c.PatchStatusAs(ctx, "", before, after)
}

// PatchStatusAs is PatchStatus with a field manager of its own, by which IsOwnStatusWrite recognizes the
// write. An empty manager is that of the function.
func (c *Client) PatchStatusAs(ctx context.Context, manager string, before, after Object) (bool, error) {
	if o, ok := after.(conditioned); ok {
		kinds, _, err := c.scheme.ObjectKinds(after)
		if err != nil {
			return false, fmt.Errorf("find the kind of %T: %w", after, err)
		}
		setProgress(kinds[0].Kind, o.StatusConditions())
	}
	return c.difference(ctx, manager, before, after, "status")
}

// Patch is PatchStatus for everything but the status.
func (c *Client) Patch(ctx context.Context, before, after Object) (bool, error) {
	return c.difference(ctx, "", before, after)
}

// EndReconcileRequest removes the annotation vitistack.io/reconcile from obj, on the condition that obj has not been written since it was read.
func (c *Client) EndReconcileRequest(ctx context.Context, obj Object) error {
	before := obj.DeepCopyObject().(Object)
	annotations := obj.GetAnnotations()
	delete(annotations, v1alpha1.AnnotationReconcile)
	obj.SetAnnotations(annotations)
	_, err := c.Patch(ctx, before, obj)
	return err
}

// Merge writes the fields of a JSON merge patch (RFC 7396) into obj without a condition. Use
// it for fields with a single writer.
func (c *Client) Merge(ctx context.Context, obj Object, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("write patch of %T %s/%s: %w", obj, obj.GetNamespace(), obj.GetName(), err)
	}
	return c.patch(ctx, types.MergePatchType, "", obj, body)
}

// Apply applies the fields as a server-side apply of a manager, and replaces obj by the object that the API server
// has stored. fields has the apiVersion and kind of obj. A field with another value that another manager owns is
// an error for which Conflict is true, and so is an obj that has been written since the resourceVersion in fields.
func (c *Client) Apply(ctx context.Context, obj Object, manager string, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("write fields of %T %s/%s: %w", obj, obj.GetNamespace(), obj.GetName(), err)
	}
	return c.patch(ctx, types.ApplyPatchType, manager, obj, body)
}

func (c *Client) difference(ctx context.Context, manager string, before, after Object, subresource ...string) (bool, error) {
	body, err := mergePatch(before, after, len(subresource) > 0)
	if err != nil {
		return false, fmt.Errorf("compare %T %s/%s: %w", after, after.GetNamespace(), after.GetName(), err)
	}
	if body == nil {
		return false, nil
	}
	return true, c.patch(ctx, types.MergePatchType, manager, after, body, subresource...)
}

// mergePatch returns a JSON merge patch (RFC 7396) from before to after for the
// status, or for all but the status, with before's resourceVersion. It returns
// nil when nothing differs.
func mergePatch(before, after Object, status bool) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.CreateMergePatch(from, to)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	if status {
		return withVersion(fields["status"], before.GetResourceVersion())
	}
	delete(fields, "status")
	if len(fields) == 0 {
		return nil, nil
	}
	metadata := map[string]json.RawMessage{}
	if raw, ok := fields["metadata"]; ok {
		if err := json.Unmarshal(raw, &metadata); err != nil {
			return nil, err
		}
	}
	metadata["resourceVersion"], _ = json.Marshal(before.GetResourceVersion())
	if fields["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

func withVersion(status json.RawMessage, resourceVersion string) ([]byte, error) {
	if status == nil {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": resourceVersion},
		"status":   status,
	})
}

// OnConflict calls f, and calls it again a few times after a conflict. f has to read the
// object first.
func OnConflict(f func() error) error {
	return retry.OnError(retry.DefaultRetry, Conflict, f)
}

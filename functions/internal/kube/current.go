package kube

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// CheckSpecCurrent reads an object again, and leaves obj as it is. It returns an error for which Conflict is true if the spec has been
// changed, or the object paused or deleted, since it was read. Call it before a step that a user may have forbidden
// meanwhile, if the decision also depends on objects that were read later.
func (c *Client) CheckSpecCurrent(ctx context.Context, obj Object) error {
	now, err := c.readAgain(ctx, obj)
	if err != nil {
		return err
	}
	if now.GetUID() == obj.GetUID() && now.GetGeneration() == obj.GetGeneration() && !v1alpha1.IsPaused(now) {
		return nil // a deletion raises the generation too
	}
	return c.ConflictOf(obj, "its spec has changed")
}

// CheckUnchanged reads an object again, and leaves obj as it is. It returns an error for which Conflict is true if anything of the object has
// been written since it was read, and one for which NotFound is true if it does not exist any more. Call it before a step outside of the object
// that cannot be undone, if the decision also depends on the metadata or the status of the object.
func (c *Client) CheckUnchanged(ctx context.Context, obj Object) error {
	now, err := c.readAgain(ctx, obj)
	switch {
	case err != nil:
		return err
	case now.GetResourceVersion() == obj.GetResourceVersion():
		return nil
	case now.GetUID() != obj.GetUID():
		_, ref, err := c.resource(obj)
		if err != nil {
			return err
		}
		return apierrors.NewNotFound(ref.GroupResource(), obj.GetName())
	default:
		return c.ConflictOf(obj, "it has been written meanwhile")
	}
}

// Gone reports whether an object that was read does not exist any more, or is being deleted without a finalizer: the function that owns the
// finalizer has ended its part of the deletion. A later object of the same name does not count.
func (c *Client) Gone(ctx context.Context, obj Object, finalizer string) (bool, error) {
	now, err := c.readAgain(ctx, obj)
	if NotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return now.GetUID() != obj.GetUID() || (now.GetDeletionTimestamp() != nil && !slices.Contains(now.GetFinalizers(), finalizer)), nil
}

// ConflictOf returns an error for which Conflict is true, about an object that is not as it was when it was read.
func (c *Client) ConflictOf(obj Object, reason string) error {
	_, ref, err := c.resource(obj)
	if err != nil {
		return err
	}
	return apierrors.NewConflict(ref.GroupResource(), obj.GetName(), errors.New(reason))
}

// readAgain returns the present object of the name of obj, and leaves obj as it is.
func (c *Client) readAgain(ctx context.Context, obj Object) (Object, error) {
	now := obj.DeepCopyObject().(Object)
	err := c.Get(ctx, obj.GetNamespace(), obj.GetName(), now)
	return now, err
}

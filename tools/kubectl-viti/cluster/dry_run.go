package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/preview"
)

// defaultManager is the field manager of kubectl apply --server-side.
const defaultManager = "kubectl"

// DryRun adds to a document the object that exists, the object that kubectl apply would store, and what the API
// server refuses, by a dry run. It changes nothing. A user without the right to write gets a document that
// is not checked, and so does a new object whose namespace the manifest creates (inNewNamespace).
func (c *Connection) DryRun(ctx context.Context, d *preview.Document, inNewNamespace bool) error {
	k, err := FindKind(d.Object.GetKind())
	if err != nil {
		return err
	}
	k.Version = d.Object.GroupVersionKind().Version
	objects := c.In(k, d.Object.GetNamespace())
	d.Before, err = objects.Get(ctx, d.Object.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && isOfObject(err):
		d.Before = nil
	case err != nil:
		return c.Explain(err, k, d.Object.GetName())
	}
	stored, err := c.try(ctx, k, d)
	switch {
	case err == nil:
		d.After, d.Checked = stored, true
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		d.Note = fmt.Sprintf("you may not write a %s, so the API server has not checked it", k.Name)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err), apierrors.IsConflict(err):
		d.Checked, d.Refusals = true, refusalsOf(err)
	case apierrors.IsNotFound(err) && inNewNamespace:
		d.Note = "the manifest creates its namespace, so the API server has not checked it"
	case apierrors.IsNotFound(err): // of the namespace
		d.Checked, d.Refusals = true, []preview.Finding{{Detail: fmt.Sprintf("%v: create the namespace first", err)}}
	default:
		return c.Explain(err, k, d.Object.GetName())
	}
	return nil
}

// try writes a document as a dry run, and returns what would be stored. An object of kubectl apply is merged with
// the last applied manifest, and one of server-side apply is applied by its field manager, so that fields that
// the manifest leaves out are removed.
func (c *Connection) try(ctx context.Context, k Kind, d *preview.Document) (*unstructured.Unstructured, error) {
	objects := c.In(k, d.Object.GetNamespace())
	dryRun := []string{metav1.DryRunAll}
	if d.Before == nil {
		return objects.Create(ctx, d.Object, metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict, FieldManager: defaultManager})
	}
	merged, note, err := preview.Merge(d.Before, d.Object)
	if err != nil {
		return nil, err
	}
	d.After = merged
	manager := managerOf(d.Before)
	if note == "" || manager == "" {
		d.Note = note
		return objects.Update(ctx, merged, metav1.UpdateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict, FieldManager: defaultManager})
	}
	d.Note = fmt.Sprintf("compared as a server-side apply by the field manager %s, which has written the object", manager)
	return objects.Apply(ctx, d.Object.GetName(), d.Object, metav1.ApplyOptions{DryRun: dryRun, FieldManager: manager})
}

// managerOf returns the only field manager that has written an object by server-side apply, or nothing.
func managerOf(o *unstructured.Unstructured) string {
	var managers []string
	for _, f := range o.GetManagedFields() {
		if f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == "" && !slices.Contains(managers, f.Manager) {
			managers = append(managers, f.Manager)
		}
	}
	if len(managers) != 1 {
		return ""
	}
	return managers[0]
}

// refusalsOf returns the causes of an error of the API server, each with its field.
func refusalsOf(err error) (all []preview.Finding) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			all = append(all, preview.Finding{Pointer: pointerOf(cause.Field), Detail: cause.Message})
		}
	}
	if len(all) == 0 {
		all = []preview.Finding{{Detail: err.Error()}}
	}
	return all
}

// pointerOf returns the JSON pointer of a field as the API server writes it.
func pointerOf(field string) string {
	if field == "" || field == "<nil>" {
		return ""
	}
	return "/" + strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(field)
}

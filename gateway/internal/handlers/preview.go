package handlers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	shared "github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/preview"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// Preview serves what applying a manifest would do. It applies nothing.
type Preview struct {
	Inventory *Inventory
	API       *apiserver.Client
	// Timeout bounds the requests to the API server together.
	Timeout time.Duration
}

// Show serves the preview of the manifest in the body.
func (h *Preview) Show(c *fiber.Ctx) error {
	snapshot, err := h.Inventory.snapshot()
	if err != nil {
		return err
	}
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	namespace := cmp.Or(p.get("namespace"), "default")
	if err := p.rest(); err != nil {
		return err
	}
	documents, err := shared.Parse(bytes.Clone(c.Request().Body()), namespace)
	if errors.Is(err, shared.ErrUnreadable) {
		return problem.New(http.StatusUnprocessableEntity, "%s", err)
	}
	if err != nil {
		return err
	}
	if err := h.requireVisible(c, documents); err != nil {
		return err
	}
	if err := h.readObjects(documents); err != nil {
		return err
	}
	classes, err := h.readClasses(documents)
	if err != nil {
		return err
	}
	made, err := preview.Make(c.UserContext(), documents, snapshot, classes, h.Inventory.Access.CallerOf(c).IsLimited())
	if err != nil {
		return err
	}
	return response.JSON(c, http.StatusOK, made)
}

// requireVisible refuses documents whose objects, networks and machines the caller may not see.
func (h *Preview) requireVisible(c *fiber.Ctx, documents []shared.Document) error {
	rights := map[string][]apiserver.Resource{}
	for _, d := range documents {
		namespace := d.Object.GetNamespace()
		wanted := rights[namespace]
		if wanted == nil {
			wanted = rightsOn(inventory.TopicNetworks, inventory.TopicMachines)
		}
		if own := (apiserver.Resource{Group: "vitistack.io", Name: resourceOf(d)}); !slices.Contains(wanted, own) {
			wanted = append(wanted, own)
		}
		rights[namespace] = wanted
		who := h.Inventory.Access.CallerOf(c)
		if namespace == "" && who.IsLimited() {
			return problem.New(http.StatusForbidden, "%s, and %s %s of document %d belongs to the whole installation: leave it out", who.DescribeLimit(), d.Object.GetKind(), d.Object.GetName(), d.Index)
		}
	}
	for namespace, resources := range rights {
		if namespace == "" {
			continue
		}
		if err := h.Inventory.Access.RequireVisible(c, namespace, resources); err != nil {
			return err
		}
	}
	return nil
}

// readObjects adds the objects that exist to documents. The inventory has no user data and no record of the last
// applied manifest, so the API server is asked. The gateway has no rights on NetworkPools, and takes them for new.
func (h *Preview) readObjects(documents []shared.Document) error {
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	for i := range documents {
		d := &documents[i]
		o := d.Object
		if o.GetKind() == "NetworkPool" {
			d.Note = "the gateway does not read NetworkPools, so this is shown as a new one: kubectl viti plan compares it"
			continue
		}
		before, err := h.API.Object(ctx, o.GetAPIVersion(), resourceOf(*d), o.GetNamespace(), o.GetName())
		if err != nil {
			return problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not answer: try again in a moment").WithRetryAfter(1)
		}
		d.Before = before
	}
	return nil
}

// readClasses returns the MachineClasses that exist, if documents have an object with a template.
func (h *Preview) readClasses(documents []shared.Document) ([]v1alpha1.MachineClass, error) {
	if !slices.ContainsFunc(documents, func(d shared.Document) bool {
		return d.Object.GetKind() == "Machine" || d.Object.GetKind() == "KubernetesCluster"
	}) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	classes, err := h.API.MachineClasses(ctx)
	if err != nil {
		return nil, problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not answer: try again in a moment").WithRetryAfter(1)
	}
	return classes, nil
}

// resourceOf returns the plural of the kind of a document.
func resourceOf(d shared.Document) string { return shared.Resource(d.Object.GetKind()) }

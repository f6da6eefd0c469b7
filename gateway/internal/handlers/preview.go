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
	// Settings are those of the functions, and DefaultTalos is the Talos version of clusters that name none.
	Settings     shared.Settings
	DefaultTalos string
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
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	existing, err := h.read(ctx, documents)
	if err != nil {
		return problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not answer: try again in a moment").WithRetryAfter(1)
	}
	made, err := preview.Make(c.UserContext(), documents, snapshot, existing, h.Inventory.Access.CallerOf(c).IsLimited())
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

// read adds the objects that exist to documents, and returns what else decides about them. The inventory has no user
// data and no record of the last applied manifest, and neither MachineClasses nor NetworkPools, so the API server is
// asked.
func (h *Preview) read(ctx context.Context, documents []shared.Document) (preview.Existing, error) {
	existing := preview.Existing{Settings: h.Settings, DefaultTalos: h.DefaultTalos, NamespaceLabels: func(namespace string) (map[string]string, error) {
		return h.API.NamespaceLabels(ctx, namespace)
	}}
	for i := range documents {
		d := &documents[i]
		o := d.Object
		before, err := h.API.Object(ctx, o.GetAPIVersion(), resourceOf(*d), o.GetNamespace(), o.GetName())
		if err != nil {
			return existing, err
		}
		d.Before = before
	}
	has := func(kinds ...string) bool {
		return slices.ContainsFunc(documents, func(d shared.Document) bool { return slices.Contains(kinds, d.Object.GetKind()) })
	}
	var err error
	if has("Machine", "KubernetesCluster", "ClusterTemplate") {
		if existing.Templates, err = h.API.ClusterTemplates(ctx); err != nil {
			return existing, err
		}
		if existing.Classes, err = h.API.MachineClasses(ctx); err != nil {
			return existing, err
		}
	}
	if has("NetworkNamespace", "NetworkConfiguration") {
		if existing.Pools, err = h.API.NetworkPools(ctx); err != nil {
			return existing, err
		}
	}
	existing.Clusters, err = h.followers(ctx, documents)
	return existing, err
}

// followers returns the clusters of the ClusterTemplates that documents change. A caller that may preview these may see
// all namespaces.
func (h *Preview) followers(ctx context.Context, documents []shared.Document) (all []v1alpha1.KubernetesCluster, err error) {
	for _, d := range documents {
		if d.Object.GetKind() != "ClusterTemplate" || d.Before == nil {
			continue
		}
		clusters, err := h.API.ClustersOf(ctx, d.Object.GetName())
		if err != nil {
			return nil, err
		}
		all = append(all, clusters...)
	}
	return all, nil
}

// resourceOf returns the plural of the kind of a document.
func resourceOf(d shared.Document) string { return shared.Resource(d.Object.GetKind()) }

// Package handlers serves the REST API: lists, clusters, resources, timelines, manifests, events, previews and the stream, and it resends and
// discards dead letters.
package handlers

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/httpbody"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/listing"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// Inventory serves the current state of the stack.
type Inventory struct {
	Store *inventory.Store
	// IsReady reports whether Store has been filled.
	IsReady func() bool
	Access  *auth.Authenticator
	// Pages caches the pages of lists.
	Pages *listing.PageCache
}

// snapshot returns the current snapshot, or a problem until the Kubernetes API has been read.
func (h *Inventory) snapshot() (*inventory.Snapshot, error) {
	if !h.IsReady() {
		return nil, problem.New(http.StatusServiceUnavailable, "the gateway is still reading the Kubernetes API: try again in a moment").WithRetryAfter(1)
	}
	return h.Store.Current(), nil
}

// ShowInfrastructure serves the summary of all resources.
func (h *Inventory) ShowInfrastructure(c *fiber.Ctx) error {
	snapshot, err := h.snapshot()
	if err != nil {
		return err
	}
	return response.Send(c, snapshot.ETag(), fiber.MIMEApplicationJSON, snapshot.Infrastructure())
}

// List returns the handler of a topic's list. The list without a query is encoded in advance.
func (h *Inventory) List(topic inventory.Topic) fiber.Handler {
	vocabulary := listing.Vocabulary{
		Attributes: slices.Concat(inventory.CommonAttributes, inventory.Attributes[topic]),
		Fields:     inventory.Fields(topic),
		Values:     inventory.Values(topic),
		Check:      inventory.CheckAttribute,
		Compare:    inventory.CompareAttribute,
	}
	return func(c *fiber.Ctx) error {
		snapshot, err := h.snapshot()
		if err != nil {
			return err
		}
		collection := snapshot.Collection(topic)
		if h.Access.CallerOf(c).IsLimited() || len(c.Request().URI().QueryString()) > 0 || collection.Shown() < len(collection.Items) {
			return h.sendList(c, list{
				field: string(topic), vocabulary: vocabulary, tag: collection.ETag(snapshot.Epoch), entries: entriesOf(collection.Items),
				resources: rightsOn(topic), exact: topic == inventory.TopicClusters,
			})
		}
		c.Context().Response.Header.Set("X-Total-Count", strconv.Itoa(len(collection.Items)))
		return response.Send(c, collection.ETag(snapshot.Epoch), fiber.MIMEApplicationJSON, collection.List())
	}
}

// Show returns the handler of one item of a topic.
func (h *Inventory) Show(topic inventory.Topic) fiber.Handler {
	return func(c *fiber.Ctx) error {
		i, snapshot, err := h.find(c, topic)
		if err != nil {
			return err
		}
		return response.Send(c, snapshot.ETag()+"-"+i.ID, fiber.MIMEApplicationJSON, httpbody.Body{Plain: i.Listed()})
	}
}

// identifierOf returns the identifier that the path of a request names. A slash in it is written as it is, or as %2F.
func identifierOf(c *fiber.Ctx) string {
	id := c.Params("id")
	if namespace := c.Params("namespace"); namespace != "" {
		id = namespace + "/" + c.Params("name")
	}
	decoded, err := url.PathUnescape(utils.CopyString(id))
	if err != nil {
		return utils.CopyString(id)
	}
	return decoded
}

// find returns the visible item of a topic that the path of a request names: by its identifier, by namespace/name, or by its name if it
// is cluster-scoped.
func (h *Inventory) find(c *fiber.Ctx, topic inventory.Topic) (*inventory.Item, *inventory.Snapshot, error) {
	snapshot, err := h.snapshot()
	if err != nil {
		return nil, nil, err
	}
	id := identifierOf(c)
	collection := snapshot.Collection(topic)
	namespace, name, ok := strings.Cut(id, "/")
	if !ok {
		namespace, name = "", id
	}
	i := collection.Find(id)
	if i == nil {
		i = collection.FindNamed(namespace, name)
	}
	if i != nil {
		namespace = i.Namespace
	}
	// A caller that may not see the item gets the same response whether or not the item exists.
	visible, err := h.Access.VisibilityOf(c, "get", []string{namespace}, rightsOn(topic))
	if err != nil {
		return nil, nil, err
	}
	if i != nil && visible.Includes(i.Namespace) {
		return i, snapshot, nil
	}
	return nil, nil, problem.New(http.StatusNotFound, "there is no %s with this id: /api/v1/%s lists them; namespace/name is an id too", strings.TrimSuffix(string(topic), "s"), topic)
}

// topicResources maps each topic with namespaces to the resource that rights in the Kubernetes API name.
var topicResources = map[inventory.Topic]apiserver.Resource{
	inventory.TopicNetworks:    {Group: "vitistack.io", Name: "networknamespaces"},
	inventory.TopicAddresses:   {Group: "vitistack.io", Name: "networkconfigurations"},
	inventory.TopicAllocations: {Group: "vitistack.io", Name: "ipallocations"},
	inventory.TopicMachines:    {Group: "vitistack.io", Name: "machines"},
	inventory.TopicVMs:         {Group: "kubevirt.io", Name: "virtualmachines"},
	inventory.TopicBackups:     {Group: "vitistack.io", Name: "etcdbackups"},
	inventory.TopicClusters:    {Group: "vitistack.io", Name: "kubernetesclusters"},
}

// HasNamespaces reports whether the items of a topic are in namespaces.
func HasNamespaces(topic inventory.Topic) bool {
	_, ok := topicResources[topic]
	return ok
}

// rightsOn returns the resources that a caller needs rights on to read topics.
func rightsOn(topics ...inventory.Topic) []apiserver.Resource {
	all := make([]apiserver.Resource, len(topics))
	for i, topic := range topics {
		all[i] = topicResources[topic]
	}
	return all
}

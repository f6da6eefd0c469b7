package handlers

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// objectJSON says how an object of any kind is doing, and what happened to it.
type objectJSON struct {
	ID         string                 `json:"id"`
	Kind       string                 `json:"kind"`
	Name       string                 `json:"name"`
	Namespace  string                 `json:"namespace,omitempty"`
	Conditions []advisedConditionJSON `json:"conditions"`
	// Paused is absent unless the annotation vitistack.io/paused keeps every function from changing the object.
	Paused *cause.Warning        `json:"paused,omitempty"`
	Events []kubernetesEventJSON `json:"events"`
	// Partial says why events are missing.
	Partial string `json:"partial,omitempty"`
}

// kubernetesEventJSON is a Kubernetes Event about an object.
type kubernetesEventJSON struct {
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
	First   time.Time `json:"firstTime"`
	Last    time.Time `json:"lastTime"`
	Source  string    `json:"source,omitempty"`
}

// eventsTTL bounds how long the Events of an object are cached.
const eventsTTL = 5 * time.Second

// objectTopics are the topics whose items are objects that report conditions.
var objectTopics = []inventory.Topic{
	inventory.TopicNetworks, inventory.TopicAddresses, inventory.TopicAllocations, inventory.TopicMachines, inventory.TopicProviders,
	inventory.TopicVMs, inventory.TopicClusters, inventory.TopicTemplates, inventory.TopicBackups,
}

// Objects serves the conditions and the Kubernetes Events of objects.
type Objects struct {
	Inventory *Inventory
	API       *apiserver.Client
	// Cache keeps the Events of an object for at most CacheTTL.
	Cache    *cache.Cache
	CacheTTL time.Duration
	// Timeout bounds each request to the API server.
	Timeout time.Duration
	Log     *slog.Logger
}

// Show serves one object.
func (h *Objects) Show(c *fiber.Ctx) error {
	i, err := h.find(c)
	if err != nil {
		return err
	}
	out := objectJSON{
		ID: i.ID, Kind: string(i.Object.Kind), Name: i.Name, Namespace: i.Namespace, Conditions: advisedConditions(i), Paused: i.Readiness.Paused(),
		Events: []kubernetesEventJSON{},
	}
	if err := h.Inventory.Access.RequireVisible(c, i.Namespace, []apiserver.Resource{{Name: "events"}}); err != nil {
		return err
	}
	if out.Events, err = h.events(i); err != nil {
		h.Log.Warn("Cannot read Events", "error", err.Error())
		out.Partial = "Events cannot be read from the Kubernetes API. If it is available, grant the service account of the gateway list on events."
	}
	return response.JSON(c, http.StatusOK, out)
}

// find returns the visible object with the identifier that the path names. A caller that may not see the object gets the same response
// whether or not the object exists.
func (h *Objects) find(c *fiber.Ctx) (*inventory.Item, error) {
	snapshot, err := h.Inventory.snapshot()
	if err != nil {
		return nil, err
	}
	missing := problem.New(http.StatusNotFound, "there is no object with this id: the lists have the identifiers, for example /api/v1/machines")
	for _, topic := range objectTopics {
		i := snapshot.Collection(topic).Find(identifierOf(c))
		if i == nil || i.Object == nil || i.Object.UID != i.ID {
			continue
		}
		if !HasNamespaces(topic) {
			if h.Inventory.Access.CallerOf(c).IsLimited() {
				return nil, missing
			}
			return i, nil
		}
		visible, err := h.Inventory.Access.VisibilityOf(c, "get", []string{i.Namespace}, rightsOn(topic))
		if err != nil {
			return nil, err
		}
		if visible.Includes(i.Namespace) {
			return i, nil
		}
		return nil, missing
	}
	return nil, missing
}

// events returns the Kubernetes Events of an object, from the cache if they have just been read.
func (h *Objects) events(i *inventory.Item) ([]kubernetesEventJSON, error) {
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	all := []kubernetesEventJSON{}
	key := "events:" + i.ID
	if body, ok := h.Cache.Get(ctx, key); ok && json.Unmarshal(body, &all) == nil {
		return all, nil
	}
	found, err := h.API.Events(ctx, i.Namespace, i.ID)
	if err != nil {
		return []kubernetesEventJSON{}, err
	}
	for _, e := range found {
		all = append(all, kubernetesEventJSON{Type: e.Type, Reason: e.Reason, Message: e.Message, Count: e.Count, First: e.First.UTC(), Last: e.Last.UTC(), Source: e.Source})
	}
	if body, err := json.Marshal(all); err == nil {
		h.Cache.Set(ctx, key, body, min(eventsTTL, h.CacheTTL))
	}
	return all, nil
}

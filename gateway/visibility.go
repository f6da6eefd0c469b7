package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// visibility is the namespaces that the answer to one request may come from. The zero value
// is none.
type visibility struct {
	// all includes objects that are in no namespace.
	all        bool
	namespaces []string
}

// includes decides whether a caller sees objects of a namespace. Every answer that shows
// objects asks it; objects in no namespace, which is empty, are of the whole installation.
func (v visibility) includes(namespace string) bool {
	return v.all || namespace != "" && slices.Contains(v.namespaces, namespace)
}

// mark stands for the namespaces in identities of answers.
func (v visibility) mark() string {
	sum := sha256.Sum256([]byte(strings.Join(v.namespaces, ",")))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// decideVisibility says what a caller sees. asked are the namespaces that the request names;
// granted are those in which the Kubernetes API lets the owner of a token read, and empty
// stands for all of them.
func decideVisibility(who caller, asked []string, granted map[string]bool) visibility {
	switch {
	case !who.limited():
		return visibility{all: true}
	case who.User == nil:
		return visibility{namespaces: who.Namespaces}
	case granted[""]:
		return visibility{all: true}
	}
	v := visibility{}
	for _, namespace := range asked {
		if namespace != "" && granted[namespace] && !slices.Contains(v.namespaces, namespace) {
			v.namespaces = append(v.namespaces, namespace)
		}
	}
	slices.Sort(v.namespaces)
	return v
}

// limited tells whether a caller may read some namespaces alone: an API key with namespaces,
// or a token without the right to the whole installation.
func (w caller) limited() bool { return w.Namespaces != nil || w.User != nil }

// what describes the limit of a caller to its owner.
func (w caller) what() string {
	if w.User != nil {
		return w.Name + " reads by namespace, with its rights in the Kubernetes API"
	}
	return w.Name + " reads the namespaces " + strings.Join(w.Namespaces, ", ") + " alone"
}

// callerKey is where a request keeps its caller.
const callerKey = "caller"

// callerOf returns who sends a request that was admitted. One that nobody has admitted sees
// nothing.
func (g *gateway) callerOf(c *fiber.Ctx) caller {
	if !g.config.Auth.Enabled {
		return caller{}
	}
	if who, ok := c.Locals(callerKey).(caller); ok {
		return who
	}
	return caller{Name: "unknown", Namespaces: []string{}}
}

// What rights on the objects of each topic are called in the Kubernetes API.
var topicResources = map[inventory.Topic]apiserver.Resource{
	inventory.TopicNetworks:    {Group: "vitistack.io", Name: "networknamespaces"},
	inventory.TopicAddresses:   {Group: "vitistack.io", Name: "networkconfigurations"},
	inventory.TopicAllocations: {Group: "vitistack.io", Name: "ipallocations"},
	inventory.TopicMachines:    {Group: "vitistack.io", Name: "machines"},
	inventory.TopicVMs:         {Group: "kubevirt.io", Name: "virtualmachines"},
	inventory.TopicClusters:    {Group: "vitistack.io", Name: "kubernetesclusters"},
}

// manifestResources are what manifests are read from.
var manifestResources = []apiserver.Resource{{Name: "configmaps"}}

// resourcesIn returns what rights on these topics are called.
func resourcesIn(topics ...inventory.Topic) []apiserver.Resource {
	all := make([]apiserver.Resource, len(topics))
	for i, topic := range topics {
		all[i] = topicResources[topic]
	}
	return all
}

// historyResources are what the history tells about.
var historyResources = resourcesIn(inventory.TopicNetworks, inventory.TopicAddresses, inventory.TopicAllocations, inventory.TopicMachines, inventory.TopicClusters)

// mostAsked bounds the namespaces that the Kubernetes API is asked about for one request.
const mostAsked = 10

// visibilityOf returns what the caller of a request sees of these resources. asked are the
// namespaces that the request names.
func (g *gateway) visibilityOf(c *fiber.Ctx, verb string, asked []string, resources []apiserver.Resource) (visibility, error) {
	who := g.callerOf(c)
	if who.User == nil {
		return decideVisibility(who, asked, nil), nil
	}
	if len(asked) > mostAsked {
		return visibility{}, problem.Parameter("namespace", "it has %d namespaces: write at most %d", len(asked), mostAsked)
	}
	granted, err := g.granted(*who.User, verb, asked, resources)
	if err != nil {
		g.log.Warn("Cannot review access", "component", "auth", "user", who.Name, "error", err.Error())
		return visibility{}, problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not say what %s may read: try again later, or use an API key", who.Name)
	}
	v := decideVisibility(who, asked, granted)
	if !v.all && len(asked) == 0 {
		return visibility{}, problem.New(http.StatusForbidden, "%s may not %s %s in all namespaces: name those to read, as in ?namespace=team-a", who.Name, verb, namesOf(resources))
	}
	return v, nil
}

// mustSee refuses a caller that may not list the resources of a namespace.
func (g *gateway) mustSee(c *fiber.Ctx, namespace string, resources []apiserver.Resource) error {
	v, err := g.visibilityOf(c, "list", []string{namespace}, resources)
	if err == nil && !v.includes(namespace) {
		err = problem.New(http.StatusForbidden, "%s, and this shows %s of namespace %s", g.callerOf(c).what(), namesOf(resources), namespace)
	}
	return err
}

func namesOf(resources []apiserver.Resource) string {
	names := make([]string, len(resources))
	for i, r := range resources {
		names[i] = r.Name
	}
	return strings.Join(names, ", ")
}

// granted asks the Kubernetes API where a user may use a verb on all of these resources: in
// every namespace, which is empty, or in those that are asked for.
func (g *gateway) granted(user apiserver.User, verb string, asked []string, resources []apiserver.Resource) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	all := map[string]bool{}
	for _, namespace := range append([]string{""}, asked...) {
		granted := true
		for _, resource := range resources {
			if !granted {
				break
			}
			var err error
			if granted, err = g.mayUse(ctx, user, verb, resource, namespace); err != nil {
				return nil, err
			}
		}
		if all[namespace] = granted; all[""] {
			break
		}
	}
	return all, nil
}

// Bounds of how long the API server's word about a right is taken.
const (
	knownRight   = 30 * time.Second
	unknownRight = 10 * time.Second
)

// mayUse asks the API server about one right, or remembers what it said.
func (g *gateway) mayUse(ctx context.Context, user apiserver.User, verb string, resource apiserver.Resource, namespace string) (bool, error) {
	asked, err := json.Marshal([]any{user, verb, resource, namespace})
	if err != nil {
		return false, fmt.Errorf("encode a right of %s: %w", user.Name, err)
	}
	sum := sha256.Sum256(asked)
	key := "right:" + base64.RawURLEncoding.EncodeToString(sum[:])
	if kept, ok := g.cache.Get(ctx, key); ok {
		return string(kept) == "yes", nil
	}
	allowed, err := g.kubernetes.MayUse(ctx, user, verb, resource, namespace)
	if err != nil {
		return false, err
	}
	word, ttl := "no", unknownRight
	if allowed {
		word, ttl = "yes", knownRight
	}
	g.cache.Set(ctx, key, []byte(word), min(ttl, g.config.Cache.TTL))
	return allowed, nil
}

// visibleEntries leaves of a list what is seen.
func visibleEntries(all iter.Seq[entry], v visibility) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for e := range all {
			if v.includes(e.Attribute("namespace")) && !yield(e) {
				return
			}
		}
	}
}

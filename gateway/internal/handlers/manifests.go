package handlers

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// manifestsJSON holds the files of a cluster.
type manifestsJSON struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Files     []manifestJSON `json:"files"`
}

type manifestJSON struct {
	Name    string `json:"name"`
	Content string `json:"content"`
	// Redacted reports that the content is left out because it may be secret.
	Redacted bool `json:"redacted,omitempty"`
}

// manifestsTTL bounds how long the files of a cluster are cached. It is short, because users look at the files while they change.
const manifestsTTL = 5 * time.Second

// Manifests serves the files that bootstrap-talos generates for clusters.
type Manifests struct {
	Inventory *Inventory
	API       *apiserver.Client
	// Cache keeps the files for at most CacheTTL.
	Cache    *cache.Cache
	CacheTTL time.Duration
	// Timeout bounds each request to the API server.
	Timeout time.Duration
	Log     *slog.Logger
}

// manifestRights are the resources that a caller needs rights on.
var manifestRights = []apiserver.Resource{{Name: "configmaps"}}

// Show serves the files of one cluster.
func (h *Manifests) Show(c *fiber.Ctx) error {
	i, _, err := h.Inventory.find(c, inventory.TopicClusters)
	if err != nil {
		return err
	}
	if err := h.Inventory.Access.RequireVisible(c, i.Namespace, manifestRights); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	key := "manifests:" + i.ID
	if body, ok := h.Cache.Get(ctx, key); ok {
		return response.Encoded{Status: http.StatusOK, Body: body}.Send(c)
	}
	files, err := h.API.Manifests(ctx, i.Namespace, i.Name)
	if err != nil {
		h.Log.Warn("Cannot read manifests", "error", err.Error())
		return problem.New(http.StatusBadGateway, "the manifests cannot be read from the Kubernetes API: if it is available, grant the service account of the gateway list on configmaps in namespace %s", i.Namespace)
	}
	body, err := json.Marshal(manifestsJSON{ID: i.ID, Name: i.Name, Namespace: i.Namespace, Files: shownFiles(files)})
	if err != nil {
		return err
	}
	h.Cache.Set(ctx, key, body, min(manifestsTTL, h.CacheTTL))
	return response.Encoded{Status: http.StatusOK, Body: body}.Send(c)
}

// privateKeyMarks are the beginnings of private keys in PEM, as text and in base64.
var privateKeyMarks = []string{
	"PRIVATE KEY-----",
	"LS0tLS1CRUdJTiBQUklWQVRF",         // -----BEGIN PRIVATE
	"LS0tLS1CRUdJTiBFQyBQUklWQVRF",     // -----BEGIN EC PRIVATE
	"LS0tLS1CRUdJTiBSU0EgUFJJVkFURS",   // -----BEGIN RSA PRIVATE
	"LS0tLS1CRUdJTiBFRDI1NTE5IFBSSVZB", // -----BEGIN ED25519 PRIVATE
}

// shownFiles returns the files in the order of their names. bootstrap-talos redacts secrets before it saves a file; the content of a
// file that holds a private key nevertheless is left out.
func shownFiles(files map[string]string) []manifestJSON {
	shown := []manifestJSON{}
	for name, content := range files {
		f := manifestJSON{Name: name, Content: content}
		if slices.ContainsFunc(privateKeyMarks, func(mark string) bool { return strings.Contains(content, mark) }) {
			f.Content, f.Redacted = "", true
		}
		shown = append(shown, f)
	}
	slices.SortFunc(shown, func(a, b manifestJSON) int { return strings.Compare(a.Name, b.Name) })
	return shown
}

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// manifestsJSON is what has been generated for a cluster.
type manifestsJSON struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Files     []manifestJSON `json:"files"`
}

type manifestJSON struct {
	Name    string `json:"name"`
	Content string `json:"content"`
	// Redacted says that the content is left out because it may be secret.
	Redacted bool `json:"redacted,omitempty"`
}

// manifestsTTL bounds how long a cluster's manifests are cached: people look at
// them while they change.
const manifestsTTL = 5 * time.Second

// showManifests serves what has been generated for a cluster.
func (g *gateway) showManifests(c *fiber.Ctx) error {
	i, _, err := g.find(c, inventory.TopicClusters)
	if err != nil {
		return err
	}
	if err := g.mustSee(c, i.Namespace, manifestResources); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	key := "manifests:" + i.ID
	if body, ok := g.cache.Get(ctx, key); ok {
		return response.Encoded{Status: http.StatusOK, Body: body}.Send(c)
	}
	files, err := g.kubernetes.Manifests(ctx, i.Namespace, i.Name)
	if err != nil {
		g.log.Warn("Cannot read manifests", "component", "httpserver", "error", err.Error())
		return problem.New(http.StatusBadGateway, "the Kubernetes API does not give the manifests out: the gateway needs to list configmaps in namespace %s", i.Namespace)
	}
	body, err := json.Marshal(manifestsJSON{ID: i.ID, Name: i.Name, Namespace: i.Namespace, Files: shownFiles(files)})
	if err != nil {
		return err
	}
	g.cache.Set(ctx, key, body, min(manifestsTTL, g.config.Cache.TTL))
	return response.Encoded{Status: http.StatusOK, Body: body}.Send(c)
}

// privateKeys are what private keys in PEM begin with, as text and in base64.
var privateKeys = []string{
	"PRIVATE KEY-----",
	"LS0tLS1CRUdJTiBQUklWQVRF",         // -----BEGIN PRIVATE
	"LS0tLS1CRUdJTiBFQyBQUklWQVRF",     // -----BEGIN EC PRIVATE
	"LS0tLS1CRUdJTiBSU0EgUFJJVkFURS",   // -----BEGIN RSA PRIVATE
	"LS0tLS1CRUdJTiBFRDI1NTE5IFBSSVZB", // -----BEGIN ED25519 PRIVATE
}

// shownFiles are the files in the order of their names. They have been redacted
// before they were saved; a file that holds a private key nevertheless is not
// shown.
func shownFiles(files map[string]string) []manifestJSON {
	shown := []manifestJSON{}
	for name, content := range files {
		f := manifestJSON{Name: name, Content: content}
		if slices.ContainsFunc(privateKeys, func(mark string) bool { return strings.Contains(content, mark) }) {
			f.Content, f.Redacted = "", true
		}
		shown = append(shown, f)
	}
	slices.SortFunc(shown, func(a, b manifestJSON) int { return strings.Compare(a.Name, b.Name) })
	return shown
}

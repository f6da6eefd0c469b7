// Package knative installs Knative Serving and Eventing on a node of tests/stand/kubernetes, and on these the stack with Helm, as a user does.
// build.sh builds the programs, images and manifests. The README of tests/node says what is real.
package knative

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/registry"
)

var (
	//go:embed manifests/network.yaml
	networkManifest string
	//go:embed manifests/ingress.yaml
	ingressManifest string
)

// Cluster is a node on which Knative and the stack run.
type Cluster struct {
	*kubernetes.Cluster
	folder string // of build.sh
}

// New returns a cluster with Knative from the folder of build.sh. Nothing is installed yet.
func New(c *kubernetes.Cluster, folder string) *Cluster { return &Cluster{c, folder} }

// In returns the cluster for a subtest, as that of package kubernetes does.
func (c *Cluster) In(t *testing.T) *Cluster { return New(c.Cluster.In(t), c.folder) }

// Programs returns the folder of the programs in a folder of build.sh.
func Programs(folder string) string { return filepath.Join(folder, "bin") }

// EnforcePolicies has the node enforce NetworkPolicies.
func (c *Cluster) EnforcePolicies() {
	c.T.Helper()
	c.Apply(networkManifest)
	if err := c.Start(kubernetes.NetworkPolicies); err != nil {
		c.T.Fatal(err)
	}
}

// Serve serves the images of build.sh and others, and takes those of the stack, until the test ends. Of two images with the same name it serves
// the one in others.
func (c *Cluster) Serve(others ...registry.Image) {
	c.T.Helper()
	images, err := c.images()
	if err != nil {
		c.T.Fatal(err)
	}
	own, err := registry.New(append(images, others...)...)
	if err != nil {
		c.T.Fatal(err)
	}
	const behind = "127.0.0.1:5001"
	if err := errors.Join(os.MkdirAll(c.Path("blobs"), 0o700),
		c.StartService("registry", c.Program("crane"), "registry", "serve", "--address", behind, "--disk", c.Path("blobs"))); err != nil {
		c.T.Fatal(err)
	}
	c.T.Cleanup(c.Services["registry"].Stop)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind})
	c.ServeRegistry(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/vitistack/") || strings.HasPrefix(r.URL.Path, "/v2/charts/") {
			forward.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	}))
}

// images returns the images of build.sh, each of one program.
func (c *Cluster) images() (all []registry.Image, err error) {
	folders, err := filepath.Glob(filepath.Join(c.folder, "images", "*"))
	if err != nil || len(folders) == 0 {
		return nil, fmt.Errorf("find the images of build.sh in %s: %d, %w; run make test-node", c.folder, len(folders), err)
	}
	for _, path := range folders {
		name := filepath.Base(path)
		programs, err := os.ReadDir(filepath.Join(path, "ko-app"))
		if err != nil || len(programs) != 1 {
			return nil, fmt.Errorf("image %s has not one program: %d, %w", name, len(programs), err)
		}
		image := registry.Image{Name: name, Folder: path, Entrypoint: []string{"/ko-app/" + programs[0].Name()}, User: "65532:65532"}
		if name == "coredns" {
			image.User = "" // it listens on port 53
		}
		all = append(all, image)
	}
	return all, nil
}

// Install applies the manifests of Knative's release, as its documentation says. It calls reached with the name of each step and its time.
func (c *Cluster) Install(reached func(step string, took time.Duration)) {
	c.T.Helper()
	deployments := func(namespace string) {
		c.T.Helper()
		c.Kubectl("wait", "-n", namespace, "deployment", "--all", "--for=condition=Available", "--timeout=280s")
	}
	for _, name := range []string{"serving-crds", "serving", "eventing-crds", "eventing"} {
		c.Apply(c.manifest(name))
		if strings.HasSuffix(name, "-crds") {
			c.Await("the CRDs are served", time.Minute, func(ctx context.Context) error { return c.RequireReady(ctx, "Established", "crd") })
		}
	}
	c.Apply(kubernetes.WithAddresses(ingressManifest))
	deployments("knative-serving")
	c.Await("the ingress class is set", time.Minute, func(ctx context.Context) error {
		_, err := c.Run(ctx, "", "kubectl", "patch", "configmap", "config-network", "-n", "knative-serving", "--type=merge",
			"-p", `{"data":{"ingress-class":"kourier.ingress.networking.knative.dev"}}`)
		return err
	})
	c.Apply(c.manifest("serving-objects"))
	deployments("kourier-system")
	reached("Knative Serving available", c.Step("Knative Serving is available"))
	deployments("knative-eventing")
	reached("Knative Eventing available, after Serving", c.Step("Knative Eventing is available"))
}

// manifest returns a manifest of build.sh.
func (c *Cluster) manifest(name string) string {
	c.T.Helper()
	text, err := os.ReadFile(filepath.Join(c.folder, "manifests", name+".yaml"))
	if err != nil {
		c.T.Fatal(err)
	}
	return kubernetes.WithAddresses(string(text))
}

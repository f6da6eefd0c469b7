package addonsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
)

// artifactScheme begins the URL of an OCI artifact, as in Flux and Helm.
const artifactScheme = "oci://"

// maxArtifactManifest is the number of bytes that the OCI manifest of an artifact may have.
const maxArtifactManifest = 1 << 20

// invalidArtifact says what is wrong with the content of an artifact. It follows the URL in the message.
type invalidArtifact string

func (e invalidArtifact) Error() string { return string(e) }

// readArtifact returns the manifests of an add-on by their paths in an OCI artifact. The layers match the digests in the
// OCI manifest, and the OCI manifest matches the digest in the URL if there is one.
func (h *Hosts) readArtifact(ctx context.Context, a v1alpha1.ClusterAddon) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	files := newArtifactFiles()
	repository, err := h.repository(a)
	if err != nil {
		return nil, addons.Problem(a.Name, addons.ReasonNotFound, fmt.Sprintf("%s: %s", a.URL, err))
	}
	manifest, err := fetchArtifactManifest(ctx, repository)
	if err != nil {
		return nil, artifactProblem(a, err)
	}
	for _, layer := range manifest.Layers {
		if !files.needs(layer) {
			continue
		}
		text, err := fetchLayer(ctx, repository, layer, files.left)
		if err == nil {
			err = files.addLayer(layer, text)
		}
		if err != nil {
			return nil, artifactProblem(a, err)
		}
	}
	if len(files.texts) == 0 {
		return nil, artifactProblem(a, invalidArtifact("has no file that ends with .yaml, .yml or .json: push some"))
	}
	return files.texts, nil
}

// repository returns the repository of an add-on's URL, which has the tag or digest as its reference. Its client
// connects only to hosts that are allowed, and has no credentials.
func (h *Hosts) repository(a v1alpha1.ClusterAddon) (*remote.Repository, error) {
	repository, err := remote.NewRepository(strings.TrimPrefix(a.URL, artifactScheme))
	if err != nil {
		return nil, err
	}
	if repository.Reference.Reference == "" {
		return nil, errors.New("write a tag or a digest, for example oci://ghcr.io/org/name:1.2.3")
	}
	repository.MaxMetadataBytes = maxArtifactManifest
	repository.Client = &auth.Client{
		Client: h.Client,
		Cache:  auth.NewCache(),
		// The rules of h.Client check the addresses of token servers too. oras would resolve their names past the proxy.
		BlockedRealmPrefixes: []netip.Prefix{},
	}
	return repository, nil
}

// fetchArtifactManifest returns the OCI manifest of an artifact.
func fetchArtifactManifest(ctx context.Context, repository *remote.Repository) (ocispec.Manifest, error) {
	var manifest ocispec.Manifest
	found, body, err := repository.Manifests().FetchReference(ctx, repository.Reference.Reference)
	if err != nil {
		return manifest, err
	}
	defer func() { _ = body.Close() }()
	switch {
	case strings.HasSuffix(found.MediaType, ".index.v1+json"), strings.HasSuffix(found.MediaType, ".manifest.list.v2+json"):
		return manifest, invalidArtifact("is an index of several artifacts: write the digest of one of them")
	case found.Size > maxArtifactManifest:
		return manifest, invalidArtifact(fmt.Sprintf("has an OCI manifest of more than %d MiB: push fewer files", maxArtifactManifest>>20))
	}
	text, err := content.ReadAll(body, found) // checks the digest
	if err != nil {
		return manifest, err
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return manifest, invalidArtifact(fmt.Sprintf("has an OCI manifest that is no JSON: %s", err))
	}
	switch config := manifest.Config.MediaType; {
	case strings.HasPrefix(config, "application/vnd.cncf.helm."):
		return manifest, invalidArtifact("is a Helm chart: push what helm template prints by flux push artifact or oras push")
	case config == ocispec.MediaTypeImageConfig, strings.HasPrefix(config, "application/vnd.docker.container.image."):
		return manifest, invalidArtifact("is a container image: push manifests by flux push artifact or oras push")
	}
	return manifest, nil
}

// fetchLayer returns the content of a layer that has at most limit bytes.
func fetchLayer(ctx context.Context, repository *remote.Repository, layer ocispec.Descriptor, limit int64) ([]byte, error) {
	if layer.Size > limit {
		return nil, errArtifactTooLarge
	}
	body, err := repository.Blobs().Fetch(ctx, layer)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return content.ReadAll(body, layer) // checks size and digest
}

// artifactProblem returns the UserError for an artifact that could not be read:
//
//	its content is wrong                   Invalid
//	it leads to a host that is not allowed NotAllowed
//	the registry does not have it          NotFound
//	the registry wants credentials         NotFound
//	anything else, also a wrong digest     Unavailable, and it is read again
func artifactProblem(a v1alpha1.ClusterAddon, err error) error {
	var invalid invalidArtifact
	var answer *errcode.ErrorResponse
	status, from := 0, a.URL
	switch {
	case errors.As(err, new(*outbound.Denied)):
		return readProblem(a, err)
	case errors.As(err, &invalid):
		return addons.Problem(a.Name, addons.ReasonInvalid, a.URL+" "+invalid.Error())
	case errors.Is(err, errdef.ErrNotFound):
		return addons.Problem(a.Name, addons.ReasonNotFound, a.URL+" is not in the registry: push it, or correct the URL")
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		status = http.StatusUnauthorized
	case errors.As(err, &answer):
		status, from = answer.StatusCode, a.URL+": "+answer.URL.Host
	default:
		return readProblem(a, err)
	}
	text := fmt.Sprintf("%s answers %d %s", from, status, http.StatusText(status))
	if isUnavailable(status) {
		return addons.Problem(a.Name, addons.ReasonUnavailable, text+". The stack checks again every minute")
	}
	return addons.Problem(a.Name, addons.ReasonNotFound, text+": make the artifact public, correct the URL, or put the manifests into a ConfigMap and name it in configMap")
}

package addonsource

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/sim/registry"
)

// hosts returns Hosts with a list of allowed hosts, which trust the registry.
func hosts(r *registry.Registry, list string) *Hosts {
	h := New(list)
	h.Client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: r.Trusted()}
	return h
}

// TestArtifacts reads what flux push artifact and oras push make.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	r := registry.New(t)
	files := map[string]string{"b.yaml": "b", "sub/a.yml": "a", "./c.json": "{}", "README.md": "no manifest"}
	id := r.Push("flux", registry.FluxConfig, registry.Layer{MediaType: registry.FluxContent, Content: registry.Archive(t, files)})
	r.Push("oras", registry.OrasConfig, registry.Layer{MediaType: registry.OrasFile, Title: "b.yaml", Content: []byte("b")}, registry.Layer{MediaType: registry.OrasFile, Title: "a.yaml", Content: []byte("a")}, registry.Layer{MediaType: registry.OrasFile, Title: "LICENSE", Content: []byte("no manifest")})
	unpacked := map[string]string{"b.yaml": "b", "sub/a.yml": "a", "c.json": "{}"}
	for reference, want := range map[string]map[string]string{
		"tools:flux":       unpacked,
		"tools@" + id:      unpacked,
		"tools:flux@" + id: unpacked,
		"bare:flux":        unpacked, // the header with the digest is optional
		"bare@" + id:       unpacked,
		"cdn:flux":         unpacked, // registries redirect to the store of the blobs
		"tools:oras":       {"a.yaml": "a", "b.yaml": "b"},
	} {
		got, err := hosts(r, "127.0.0.1").Read(t.Context(), v1alpha1.ClusterAddon{Name: "a", URL: r.URLOf(reference)})
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", reference, err, d)
		}
	}
}

// pushInvalid adds artifacts whose contents are refused, by tags of their names.
func pushInvalid(t *testing.T, r *registry.Registry) {
	yaml := func(content []byte) registry.Layer {
		return registry.Layer{MediaType: registry.OrasFile, Title: "a.yaml", Content: content}
	}
	packed := func(files map[string]string) registry.Layer {
		return registry.Layer{MediaType: registry.FluxContent, Content: registry.Archive(t, files)}
	}
	many := map[string]string{}
	for i := range maxArtifactFiles + 1 {
		many[fmt.Sprintf("%d.yaml", i)] = ""
	}
	half := string(make([]byte, addons.MaxSize/2))
	for tag, layers := range map[string][]registry.Layer{
		"bomb":          {packed(map[string]string{"a.yaml": string(make([]byte, 64<<20))})},
		"other-bomb":    {packed(map[string]string{"LICENSE": string(make([]byte, 64<<20))})},
		"large":         {yaml(make([]byte, addons.MaxSize+1))},
		"large-sum":     {packed(map[string]string{"a.yaml": half, "b.yaml": half}), {MediaType: registry.OrasFile, Title: "c.yaml", Content: []byte("c")}},
		"many":          {packed(many)},
		"long-path":     {packed(map[string]string{strings.Repeat("a/", 200) + "a.yaml": "a"})},
		"twice":         {yaml([]byte("a")), yaml([]byte("b"))},
		"kustomize":     {packed(map[string]string{"base/kustomization.yaml": "a", "a.yaml": "a"})},
		"no-gzip":       {{MediaType: registry.FluxContent, Content: []byte("this is plain text")}},
		"no-tar":        {{MediaType: registry.FluxContent, Content: registry.Archive(t, nil)[:20]}},
		"without-files": {packed(map[string]string{"README.md": "x"})},
	} {
		r.Push(tag, registry.FluxConfig, layers...)
	}
	r.Push("chart", registry.HelmConfig, registry.Layer{MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Content: registry.Archive(t, map[string]string{"values.yaml": "a"})})
	r.Push("image", ocispec.MediaTypeImageConfig, packed(map[string]string{"etc/a.yaml": "a"}))
	r.Put("index", ocispec.MediaTypeImageIndex, []byte(`{"schemaVersion": 2, "manifests": []}`))
	r.Put("no-manifest", ocispec.MediaTypeImageManifest, []byte("<html>"))
	r.Put("unbounded", ocispec.MediaTypeImageManifest, make([]byte, maxArtifactManifest+1))
}

// TestArtifactErrors follows neither a registry nor an artifact to where the platform team does not allow it, and says
// how to correct the add-on.
func TestArtifactErrors(t *testing.T) {
	t.Parallel()
	r := registry.New(t)
	pushInvalid(t, r)
	good := r.Push("good", registry.OrasConfig, registry.Layer{MediaType: registry.OrasFile, Title: "a.yaml", Content: []byte("good")})
	forged := digest.FromString("other").String()
	r.Contents[forged], r.MediaTypes[forged] = r.Contents[good], ocispec.MediaTypeImageManifest
	r.Push("changed", registry.OrasConfig, registry.Layer{MediaType: registry.OrasFile, Title: "a.yaml", Content: []byte("true")})
	r.Contents[digest.FromString("true").String()] = []byte("evil")
	r.Push("lost", registry.OrasConfig, registry.Layer{MediaType: registry.OrasFile, Title: "a.yaml", Content: []byte("lost")})
	delete(r.Contents, digest.FromString("lost").String())

	for name, tc := range map[string]struct {
		why, reference string
		reason, words  string
	}{
		"Bomb":          {"memory is bounded", "tools:bomb", addons.ReasonInvalid, "has more than 2 MiB: split it"},
		"Other bomb":    {"time is bounded for files of no interest too", "tools:other-bomb", addons.ReasonInvalid, "has more than 2 MiB: split it"},
		"Large":         {"its size is known before it is read", "tools:large", addons.ReasonInvalid, "has more than 2 MiB: split it"},
		"Large sum":     {"the limit is that of an add-on", "tools:large-sum", addons.ReasonInvalid, "has more than 2 MiB: split it"},
		"Many":          {"each file costs time", "tools:many", addons.ReasonInvalid, "has more than 1000 files"},
		"Long path":     {"messages name the path", "tools:long-path", addons.ReasonInvalid, "has a path of more than 255 characters"},
		"Twice":         {"one of both would be lost", "tools:twice", addons.ReasonInvalid, "has a.yaml twice"},
		"Kustomize":     {"its files without its patches are other objects", "tools:kustomize", addons.ReasonInvalid, "has base/kustomization.yaml, which is not evaluated: push what kustomize build prints"},
		"No gzip":       {"the media type is wrong", "tools:no-gzip", addons.ReasonInvalid, "has a layer that is no archive: gzip: "},
		"No tar":        {"the archive is cut", "tools:no-tar", addons.ReasonInvalid, "has a layer that is no archive: "},
		"Without files": {"there is nothing to apply", "tools:without-files", addons.ReasonInvalid, "has no file that ends with .yaml, .yml or .json: push some"},
		"Chart":         {"helm renders it", "tools:chart", addons.ReasonInvalid, "is a Helm chart: push what helm template prints"},
		"Image":         {"files of an image are no manifests", "tools:image", addons.ReasonInvalid, "is a container image: push manifests by flux push artifact or oras push"},
		"Index":         {"the artifact is not named", "tools:index", addons.ReasonInvalid, "is an index of several artifacts: write the digest of one of them"},
		"No manifest":   {"it is no JSON", "tools:no-manifest", addons.ReasonInvalid, "has an OCI manifest that is no JSON: "},
		"Unbounded":     {"memory is bounded", "tools:unbounded", addons.ReasonInvalid, "has an OCI manifest of more than 1 MiB"},
		"Forged":        {"a digest names its content", "tools@" + forged, addons.ReasonUnavailable, "mismatched digest. The stack checks again"},
		"Forged, bare":  {"without the header too", "bare@" + forged, addons.ReasonUnavailable, "digest mismatch"},
		"Changed":       {"the manifest names the content of layers", "tools:changed", addons.ReasonUnavailable, "mismatched digest. The stack checks again"},
		"Changed, cdn":  {"after a redirect too", "cdn:changed", addons.ReasonUnavailable, "mismatched digest. The stack checks again"},
		"Lost":          {"the registry has lost a layer", "tools:lost", addons.ReasonNotFound, "is not in the registry: push it, or correct the URL"},
		"No tag":        {"latest would never be read again", "tools", addons.ReasonNotFound, "write a tag or a digest"},
		"No reference":  {"a digest is cut", "tools@sha256:12", addons.ReasonNotFound, "invalid digest"},
		"Unknown":       {"the tag is wrong", "tools:unknown", addons.ReasonNotFound, "is not in the registry: push it, or correct the URL"},
		"Private":       {"the token server refuses", "private:good", addons.ReasonNotFound, "answers 403 Forbidden: make the artifact public, correct the URL, or put the manifests into a ConfigMap and name it in configMap"},
		"Denied":        {"the registry has no token server", "denied:good", addons.ReasonNotFound, "answers 401 Unauthorized: make the artifact public"},
		"Basic":         {"the registry wants a password", "basic:good", addons.ReasonNotFound, "answers 401 Unauthorized: make the artifact public"},
		"Broken":        {"the registry is at fault", "broken:good", addons.ReasonUnavailable, "answers 502 Bad Gateway. The stack checks again every minute"},
		"Plain realm":   {"a token server without TLS can be forged", "plain:good", addons.ReasonUnavailable, "uses http"},
		"Foreign realm": {"a token server is at an allowed host", "foreign:good", addons.ReasonNotAllowed, "leads to 169.254.169.254"},
		"Moved":         {"a redirect leads to no other host", "moved:good", addons.ReasonNotAllowed, "leads to 169.254.169.254"},
	} {
		url := r.URLOf(tc.reference)
		_, err := hosts(r, "127.0.0.1").Read(t.Context(), v1alpha1.ClusterAddon{Name: "a", URL: url})
		problem, _ := reconcile.AsUserError(err)
		if problem.Reason != tc.reason || !strings.Contains(problem.Message, tc.words) || !strings.Contains(problem.Message, path.Dir(url[6:])) {
			t.Errorf("%s: %s: got %v", name, tc.why, err)
		}
	}
	_, err := hosts(r, "example.com").Read(t.Context(), v1alpha1.ClusterAddon{Name: "a", URL: r.URLOf("tools:good")})
	if problem, _ := reconcile.AsUserError(err); problem.Reason != addons.ReasonNotAllowed || !strings.Contains(problem.Message, "manifests are not read from 127.0.0.1: put them into a ConfigMap") {
		t.Errorf("the registry is not listed, got %v", err)
	}
}

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const version = "9.8.7"

// rehearsal is a copy of the checkout in which the commands of the release run.
type rehearsal struct {
	*testing.T
	root string
	// registry is the address of the registry, and transport trusts its certificate.
	registry  string
	transport http.RoundTripper
	job       job
	values    map[string]string
	env       []string
}

// start copies the checkout, with a changelog that has the version, and starts a registry.
func start(t *testing.T) *rehearsal {
	t.Helper()
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	home := t.TempDir()
	r := &rehearsal{T: t, root: filepath.Join(t.TempDir(), "stack"), registry: strings.TrimPrefix(server.URL, "https://"), transport: server.Client().Transport}
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if r.job, err = readJob(filepath.Join(checkout, ".github/workflows/release.yml"), "release"); err != nil {
		t.Fatal(err)
	}
	for variable, text := range r.job.Env {
		r.job.Env[variable] = strings.ReplaceAll(text, "ghcr.io", r.registry)
	}
	r.values = map[string]string{"github.repository_owner": "vitistack", "secrets.GITHUB_TOKEN": "token", "github.token": "token"}
	certificate := filepath.Join(home, "registry.pem")
	r.write(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	// gh creates the release: here it only keeps what it is given.
	r.write(filepath.Join(home, "bin", "gh"), []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" > gh.txt\n"))
	if err := os.Chmod(filepath.Join(home, "bin", "gh"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.env = append(os.Environ(), "PATH="+filepath.Join(home, "bin")+":"+os.Getenv("PATH"), "SSL_CERT_FILE="+certificate, "SSL_CERT_DIR=/etc/ssl/certs",
		"DOCKER_CONFIG="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "GITHUB_REF_NAME=v"+version, "GITHUB_ACTOR=actor")
	if err := os.MkdirAll(r.root, 0o700); err != nil {
		t.Fatal(err)
	}
	r.bash("cd "+checkout+" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "+r.root, r.env)
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	r.write(filepath.Join(r.root, "CHANGELOG.md"), bytes.Replace(changelog, []byte("## Unreleased\n"), []byte("## Unreleased\n\n## "+version+" - 2026-12-01\n"), 1))
	return r
}

func (r *rehearsal) write(path string, content []byte) {
	r.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		r.Fatal(err)
	}
}

func (r *rehearsal) read(path string) []byte {
	r.Helper()
	content, err := os.ReadFile(filepath.Join(r.root, path))
	if err != nil {
		r.Fatal(err)
	}
	return content
}

// bash runs a command as GitHub does with the shell bash, in the copy of the checkout.
func (r *rehearsal) bash(script string, env []string) string {
	r.Helper()
	command := exec.CommandContext(r.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
	command.Dir, command.Env = r.root, env
	out, err := command.CombinedOutput()
	if err != nil {
		r.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// run runs the command of a step, and keeps its outputs.
func (r *rehearsal) run(s step) {
	r.Helper()
	variables, err := r.job.environment(s, r.values)
	if err != nil {
		r.Fatalf("step %s: %v", s.Name, err)
	}
	file := filepath.Join(r.TempDir(), "output")
	r.bash(s.Run, slices.Concat(r.env, variables, []string{"GITHUB_OUTPUT=" + file}))
	written, err := os.ReadFile(file)
	if err != nil && s.ID != "" {
		r.Fatalf("step %s has no output: %v", s.Name, err)
	}
	for name, value := range outputs(string(written)) {
		r.values["steps."+s.ID+".outputs."+name] = value
	}
}

// TestRelease runs every command of the job release for a tag, and checks what it publishes: images, the chart that names
// them by digest, the plugin for each platform, checksums, and notes from the changelog. Actions are not run: their files
// have to exist.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := start(t)
	ran := 0
	for _, s := range r.job.Steps {
		if s.Run == "" {
			r.requireFiles(s)
			continue
		}
		t.Logf("step %s", s.Name)
		r.run(s)
		ran++
	}
	if ran < 5 {
		t.Errorf("%d steps were run", ran)
	}
	r.checkImages()
	r.checkChart()
	r.checkPlugins()
	r.checkAssets()
}

// requireFiles checks that the files that an action reads exist.
func (r *rehearsal) requireFiles(s step) {
	r.Helper()
	for _, input := range []string{"path", "subject-path"} {
		pattern, ok := s.With[input].(string)
		if !ok {
			continue
		}
		if found, err := filepath.Glob(filepath.Join(r.root, pattern)); err != nil || len(found) == 0 {
			r.Errorf("%s reads %s, which does not exist: %v", s.Uses, pattern, err)
		}
	}
}

// published is an image in the output of the workflow.
type published struct{ Name, Digest string }

func (r *rehearsal) images() (all []published) {
	r.Helper()
	if err := json.Unmarshal([]byte(r.values["steps.images.outputs.images"]), &all); err != nil || len(all) < 8 {
		r.Fatalf("the output images is %q: %v", r.values["steps.images.outputs.images"], err)
	}
	return all
}

// checkImages finds each image in the registry, by the tag and with the digest, and its SBOM for the job attest.
func (r *rehearsal) checkImages() {
	r.Helper()
	for _, image := range r.images() {
		reference, err := name.ParseReference(r.registry + "/vitistack/stack/" + image.Name + ":" + version)
		if err != nil {
			r.Fatal(err)
		}
		found, err := remote.Get(reference, remote.WithTransport(r.transport))
		if err != nil || found.Digest.String() != image.Digest {
			r.Errorf("image %s: %v, want %s: %v", image.Name, found, image.Digest, err)
		}
		if !json.Valid(r.read("dist/sbom/" + image.Name + "-index.spdx.json")) {
			r.Errorf("the SBOM of %s is no JSON", image.Name)
		}
	}
}

// checkChart pulls the chart, and checks its versions and the digests of its images.
func (r *rehearsal) checkChart() {
	r.Helper()
	if digest := r.values["steps.chart.outputs.digest"]; !strings.HasPrefix(digest, "sha256:") {
		r.Errorf("the digest of the chart is %q", digest)
	}
	env := slices.Concat(r.env, []string{"CHART=oci://" + r.registry + "/vitistack/helm/vitistack"})
	shown := r.bash(`"$(make --silent helm)" show chart "$CHART" --version `+version, env)
	for _, want := range []string{"\nversion: " + version + "\n", "appVersion: " + version + "\n"} {
		if !strings.Contains("\n"+shown, want) {
			r.Errorf("the chart lacks %q:\n%s", want, shown)
		}
	}
	rendered := r.bash(`"$(make --silent helm)" template vitistack "$CHART" --version `+version, env)
	for _, image := range r.images() {
		if !strings.Contains(rendered, "/"+image.Name+"@"+image.Digest) {
			r.Errorf("the chart does not run %s@%s", image.Name, image.Digest)
		}
	}
}

// checkPlugins unpacks kubectl viti of each platform, and runs the one of this machine.
func (r *rehearsal) checkPlugins() {
	r.Helper()
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
		archive := fmt.Sprintf("dist/kubectl-viti_%s_%s.tar.gz", version, platform)
		unpacked, err := gzip.NewReader(bytes.NewReader(r.read(archive)))
		if err != nil {
			r.Fatal(err)
		}
		var files []string
		for entries := tar.NewReader(unpacked); ; {
			entry, err := entries.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				r.Fatal(err)
			}
			if entry.Typeflag == tar.TypeReg {
				files = append(files, filepath.Base(entry.Name))
			}
		}
		slices.Sort(files)
		if want := []string{"LICENSE", "kubectl-viti", "kubectl_complete-viti"}; !slices.Equal(files, want) {
			r.Errorf("%s has %v, want %v", archive, files, want)
		}
	}
	if out := r.bash("dist/kubectl-viti-"+runtime.GOOS+"-"+runtime.GOARCH+"/kubectl-viti --version", r.env); !strings.Contains(out, version) {
		r.Errorf("kubectl viti --version says %q", out)
	}
}

// checkAssets checks what the release on GitHub gets: the files with their checksums, and notes from the changelog.
func (r *rehearsal) checkAssets() {
	r.Helper()
	arguments := strings.Fields(string(r.read("gh.txt")))
	if !slices.Contains(arguments, "v"+version) || slices.Contains(arguments, "--prerelease") {
		r.Errorf("gh got %v", arguments)
	}
	var assets []string
	for _, argument := range arguments {
		if file, ok := strings.CutPrefix(argument, "dist/"); ok && file != "checksums.txt" {
			r.read(argument)
			assets = append(assets, file)
		}
	}
	r.bash("cd dist && sha256sum --check --strict checksums.txt", r.env)
	sums := string(r.read("dist/checksums.txt"))
	if n := strings.Count(sums, "\n"); n != len(assets) || n != 7 {
		r.Errorf("%d assets, but checksums.txt has\n%s", len(assets), sums)
	}
	if notes := string(r.read("notes.md")); !strings.Contains(notes, "### Added") || strings.Contains(notes, "\n## ") {
		r.Errorf("the notes are\n%s", notes)
	}
}

// TestNotes prints the notes of versions from a changelog, and refuses a version that the changelog does not have.
func TestNotes(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "CHANGELOG.md")
	const changelog = "# Changelog\n\n## Unreleased\n\n## 1.3.0\n\n## 1.2.0 - 2026-01-02\n\n### Added\n\n- Waves.\n\n## 1.1.0\n\n- Older.\n"
	if err := os.WriteFile(file, []byte(changelog), 0o600); err != nil {
		t.Fatal(err)
	}
	for version, tc := range map[string]struct{ reason, want string }{
		"1.2.0": {"the section ends at the next one", "\n### Added\n\n- Waves.\n\n"},
		"1.1.0": {"the last section ends with the file", "\n- Older.\n"},
		"1.3.0": {"an empty section has nothing", ""},
		"1.2":   {"a part of a version is another version", ""},
		"9.9.9": {"the version has no section", ""},
	} {
		command := exec.CommandContext(t.Context(), "make", "--silent", "notes", "VERSION="+version, "CHANGELOG="+file)
		command.Dir = root
		out, err := command.Output()
		if (err == nil) != (tc.want != "") || tc.want != "" && string(out) != tc.want {
			t.Errorf("%s: %s: %q, %v", version, tc.reason, out, err)
		}
	}
}

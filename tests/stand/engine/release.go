package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// release is a version of the stack: its files, and the folder of its programs.
type release struct{ root, bin string }

// baseline stands for the last release until there is one. Its functions give nodes their configuration through the
// hypervisor, as the simulators require it.
const baseline = "d80f81df96a7a15490d223e8cc75363daae14242"

// StartLastRelease starts an engine with the functions, manifests and CRDs of the last release before this checkout. Upgrade
// continues with those of the checkout. It skips t in a clone without the history.
func StartLastRelease(t testing.TB, flags ...string) *Engine {
	t.Helper()
	Build(t)
	r, err := lastRelease()
	if errors.Is(err, errNoHistory) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return start(t, t.TempDir(), r, flags...)
}

// Upgrade stops the engine, and starts it with the functions, manifests and CRDs of this checkout and the same state.
func (e *Engine) Upgrade() {
	e.t.Helper()
	e.Stop()
	e.release = release{root: Root(), bin: Bin(e.t)}
	e.Run()
}

// LastRelease returns the folder with the manifests, CRDs and the chart of the last release before this checkout. It skips t in a
// clone without the history.
func LastRelease(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	commit, err := git("rev-parse", "--verify", lastTag()+"^{commit}")
	if err != nil {
		t.Skip(errNoHistory)
	}
	script := `git archive "$0" charts apis/crds knative | tar -xf - -C "$1"`
	command := exec.CommandContext(t.Context(), "sh", "-ec", script, commit, folder)
	command.Dir = Root()
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("read the chart of %s: %v\n%s", commit, err, out)
	}
	return folder
}

var errNoHistory = errors.New("this clone lacks the last release: fetch the history of the repository (git fetch --unshallow --tags)")

// lastRelease builds the functions of the last release, and keeps them in the cache.
func lastRelease() (release, error) {
	commit, err := git("rev-parse", "--verify", lastTag()+"^{commit}")
	if err != nil {
		return release{}, errNoHistory
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return release{}, err
	}
	folder := filepath.Join(cache, "vitistack", "releases", commit)
	r := release{root: filepath.Join(folder, "root"), bin: filepath.Join(folder, "bin")}
	if _, err := os.Stat(folder); err == nil {
		return r, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return release{}, err
	}
	work, err := os.MkdirTemp(filepath.Dir(folder), "building-")
	if err != nil {
		return release{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := buildRelease(commit, work); err != nil {
		return release{}, err
	}
	// Another test may have been faster.
	if err := os.Rename(work, folder); err != nil && !os.IsExist(err) {
		return release{}, err
	}
	return r, nil
}

// lastTag returns the last tag of a release before this commit, or the baseline.
func lastTag() string {
	if tag, err := git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"); err == nil {
		return tag
	}
	return baseline
}

// buildRelease writes the files of a commit into root of a folder, and its programs into bin.
func buildRelease(commit, folder string) error {
	script := `mkdir "$1/root" "$1/bin" && git archive "$0" | tar -xf - -C "$1/root" && cd "$1/root" &&
		CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$1/bin/" ./functions/... ./gateway`
	command := exec.Command("sh", "-ec", script, commit, folder)
	command.Dir = Root()
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the functions of %s: %w\n%s", commit, err, out)
	}
	return nil
}

func git(args ...string) (string, error) {
	command := exec.Command("git", args...)
	command.Dir = Root()
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

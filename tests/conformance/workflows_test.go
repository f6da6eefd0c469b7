package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
)

// TestPipesFail checks that every workflow with a pipe sets its shell: GitHub sets pipefail only for
// an explicit shell, and otherwise ignores a failure before the last program.
func TestPipesFail(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(engine.Root(), ".github", "workflows", "*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	pipes := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var workflow struct {
			Defaults struct{ Run struct{ Shell string } }
			Jobs     map[string]struct{ Steps []struct{ Run string } }
		}
		if err := yaml.Unmarshal(text, &workflow); err != nil {
			t.Fatal(err)
		}
		for name, job := range workflow.Jobs {
			for _, step := range job.Steps {
				if !strings.Contains(step.Run, " | ") {
					continue
				}
				pipes++
				if workflow.Defaults.Run.Shell != "bash" {
					t.Errorf("%s, job %s: a pipe hides a failure: %s", filepath.Base(path), name, step.Run)
				}
			}
		}
	}
	if pipes == 0 {
		t.Error("no workflow has a pipe")
	}
}

// TestActionsArePinned checks that the actions of workflows have a commit, because a moved tag could
// publish in the project's name.
func TestActionsArePinned(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(engine.Root(), ".github", "workflows", "*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	uses, pinned := regexp.MustCompile(`uses: (\S.*)`), regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v[0-9.]+$`)
	seen := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range uses.FindAllStringSubmatch(string(text), -1) {
			seen++
			if action := match[1]; !strings.HasPrefix(action, "./") && !pinned.MatchString(action) {
				t.Errorf("%s uses %s: write the commit, and its version as a comment", filepath.Base(path), action)
			}
		}
	}
	if seen == 0 {
		t.Error("no workflow uses an action")
	}
}

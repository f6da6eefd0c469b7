package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// TestLinksLead checks that the relative links of every page lead to files of this repository.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	followed := 0
	err := filepath.WalkDir(engine.Root(), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != engine.Root() {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range link.FindAllStringSubmatch(string(page), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			followed++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), found[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, found[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if followed < 50 {
		t.Errorf("only %d links were found", followed)
	}
}

// TestEventsAreDocumented checks that events/README.md lists every event type.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(engine.Root(), "events", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, eventType := range declaredTypes(t) {
		if !strings.Contains(string(page), "`"+eventType+"`") {
			t.Errorf("events/README.md lacks %s", eventType)
		}
	}
}

// TestBackupHasEveryKind checks that the backup command in docs/backup.md includes every kind of the
// stack.
func TestBackupHasEveryKind(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "backup.md"))
	if err != nil {
		t.Fatal(err)
	}
	saved := regexp.MustCompile(`kubectl get (\S+) -A -o yaml > objects.yaml`).FindSubmatch(page)
	if saved == nil {
		t.Fatal("backup.md has no backup command")
	}
	paths, err := filepath.Glob(filepath.Join(engine.Root(), "apis", "crds", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("find the definitions: %d files, %v", len(paths), err)
	}
	kinds := strings.Split(string(saved[1]), ",")
	for _, path := range paths {
		kind := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "vitistack.io_"), ".yaml")
		if !slices.Contains(kinds, kind) {
			t.Errorf("backup.md does not save %s", kind)
		}
	}
}

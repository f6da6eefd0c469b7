package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// TestLinksLead follows the links of every page to files of this repository.
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
				t.Errorf("%s links to %s, which is not there", path, found[1])
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

// TestEventsAreDocumented looks up every type of event in the page that lists them.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(engine.Root(), "events", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, eventType := range declaredTypes(t) {
		if !strings.Contains(string(page), "`"+eventType+"`") {
			t.Errorf("events/README.md does not tell of %s", eventType)
		}
	}
}

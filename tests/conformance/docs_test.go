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
	eachFile(t, ".md", func(path, page string) {
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			followed++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), found[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, found[1])
			}
		}
	})
	if followed < 50 {
		t.Errorf("only %d links were found", followed)
	}
}

var (
	namedTest    = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)(?:/[^`]*)?`")
	declaredTest = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*)\(`)
)

// TestNamedTestsExist checks that the tests which pages give as evidence exist.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	eachFile(t, "_test.go", func(_, text string) {
		for _, found := range declaredTest.FindAllStringSubmatch(text, -1) {
			exists[found[1]] = true
		}
	})
	named := 0
	eachFile(t, ".md", func(path, page string) {
		for _, found := range namedTest.FindAllStringSubmatch(page, -1) {
			named++
			if !exists[found[1]] {
				t.Errorf("%s names %s, which does not exist", path, found[1])
			}
		}
	})
	if named < 50 {
		t.Errorf("only %d names were found", named)
	}
}

// eachFile calls visit with the path and the text of every file of this repository whose name ends with suffix.
func eachFile(t *testing.T, suffix string, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(engine.Root(), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != engine.Root() {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			visit(path, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
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

package main

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vitistack/stack/tests/stand/browser"
)

var (
	linkPattern   = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	anchorPattern = regexp.MustCompile(` id="([^"]+)"`)
)

// TestLinks follows each link within the site of this repository.
func TestLinks(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	if _, err := build("../..", out); err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	err := filepath.WalkDir(out, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".html") {
			return err
		}
		text, err := os.ReadFile(path)
		pages[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	followed := 0
	for path, text := range pages {
		for _, found := range linkPattern.FindAllStringSubmatch(text, -1) {
			link, err := url.Parse(strings.ReplaceAll(found[1], "&amp;", "&"))
			if err != nil || link.Scheme != "" {
				continue
			}
			followed++
			target := path
			if link.Path != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(link.Path))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, found[1])
			} else if link.Fragment != "" && link.Fragment != "content" && !hasAnchor(pages[target], link.Fragment) {
				t.Errorf("%s links to %s, which has no such heading", path, found[1])
			}
		}
	}
	if followed < 1000 {
		t.Errorf("only %d links were followed in %d pages", followed, len(pages))
	}
}

func hasAnchor(text, fragment string) bool {
	for _, found := range anchorPattern.FindAllStringSubmatch(text, -1) {
		if found[1] == fragment {
			return true
		}
	}
	return false
}

// TestSearch searches in a browser, without a server.
func TestSearch(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	if _, err := build("../..", out); err != nil {
		t.Fatal(err)
	}
	tab := browser.New(t, "file://"+out, 1200, 800)
	tab.Open("docs/install.html")
	find := func(words string) {
		tab.Do(`document.getElementById("search").value = ` + browser.Quote(words))
		tab.Do(`document.getElementById("search").dispatchEvent(new Event("input"))`)
	}
	find("poolexhausted")
	tab.Wait("results", `document.querySelector("#results li mark")`)
	if got, want := tab.Text("#results li a"), "Reasons of conditions: PoolExhausted"; got != want {
		t.Errorf("the first result is %q, want %q", got, want)
	}
	tab.Follow(`document.getElementById("search").form.requestSubmit()`)
	if place := browser.Eval[string](tab, `location.href`); !strings.HasSuffix(place, "/docs/reference/conditions.html#poolexhausted") {
		t.Errorf("the first result leads to %s", place)
	}
	tab.Press("/")
	tab.Wait("the search has the focus", `document.activeElement.id === "search"`)
	find("quetzalcoatl")
	tab.Wait("the answer", `document.getElementById("results").textContent.includes("Nothing has the words")`)
}

// TestTargets moves links of the repository to the site.
func TestTargets(t *testing.T) {
	t.Parallel()
	b := &builder{files: map[string]string{"README.md": "index.html", "docs/install.md": "docs/install.html", "apis/README.md": "apis/index.html"}}
	from := &page{source: "docs/upgrade.md", file: "docs/upgrade.html"}
	for link, want := range map[string]string{
		"install.md":              "install.html",
		"install.md#secrets":      "install.html#secrets",
		"../README.md":            "../index.html",
		"../apis":                 "../apis/index.html",
		"../knative/sources.yaml": repository + "knative/sources.yaml",
		"#rollback":               "#rollback",
		"https://kubernetes.io/":  "https://kubernetes.io/",
	} {
		if got := b.target(from, link); got != want {
			t.Errorf("%s leads to %s, want %s", link, got, want)
		}
	}
}

// TestEveryDocumentIsListed refuses a document that no reader of the site would find.
func TestEveryDocumentIsListed(t *testing.T) {
	t.Parallel()
	root := fstest.MapFS{"docs/forgotten.md": {}, "functions/README.md": {}, "tests/README.md": {}, "docs/reference/README.md": {}}
	for _, s := range sections {
		for _, source := range s.sources {
			if strings.HasSuffix(source, ".md") {
				root[source] = &fstest.MapFile{}
			}
		}
	}
	if _, err := findPages(root); err == nil || !strings.Contains(err.Error(), "docs/forgotten.md") {
		t.Errorf("got %v, want an error about docs/forgotten.md", err)
	}
}

// TestForeignFolder keeps a folder that is no site.
func TestForeignFolder(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	kept := filepath.Join(out, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := build("../..", out); err == nil || !strings.Contains(err.Error(), "-out") {
		t.Errorf("got %v, want an error that says what to write instead", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

package main

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// home is the file of the first page.
const home = "index.html"

// section is a part of the navigation.
type section struct {
	Title string
	// sources are Markdown files, or folders that stand for all files in them.
	sources []string
}

// sections have the order of the site: what a reader learns first comes first (diataxis.fr).
var sections = []section{
	{"Start", []string{"README.md"}},
	{"How to", []string{
		"docs/install.md", "docs/kubectl-viti.md", "docs/gitops.md", "docs/machine-classes.md", "docs/cluster-templates.md", "docs/addons.md", "docs/compatibility.md", "docs/upgrade.md", "docs/backup.md", "docs/migrate.md",
		"docs/debug.md", "docs/observe.md", "docs/backends.md",
	}},
	{"Understand", []string{"ARCHITECTURE.md", "docs/compare.md", "docs/brokers.md", "docs/scale.md", "docs/security.md", "tests/bench/RESULTS.md"}},
	{"Reference", []string{"docs/reference", "docs/changes.md", "charts/vitistack/README.md", "gateway/README.md", "events/README.md", "apis/README.md"}},
	{"Functions", []string{"functions", "knative/README.md", "knative/local/README.md"}},
	{"Project", []string{"CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tests", "docs/README.md", "gateway/internal/page/README.md"}},
}

// page is a Markdown file and its place in the site.
type page struct {
	// source is the file in the repository, and file that in the site, both with slashes.
	source, file string
	title        string
	section      string
}

// findPages returns the pages in the order of the navigation. A file in docs that no section has is an error, because
// no reader would find it.
func findPages(root fs.FS) ([]*page, error) {
	var pages []*page
	known := map[string]bool{}
	for _, s := range sections {
		for _, source := range s.sources {
			files, err := markdownIn(root, source)
			if err != nil {
				return nil, err
			}
			for _, f := range files {
				if !known[f] {
					known[f] = true
					pages = append(pages, &page{source: f, file: fileOf(f), section: s.Title})
				}
			}
		}
	}
	docs, err := markdownIn(root, "docs")
	if err != nil {
		return nil, err
	}
	for _, f := range docs {
		if !known[f] {
			return nil, fmt.Errorf("%s is in no section of the site: add it in tools/site/pages.go", f)
		}
	}
	return pages, nil
}

// markdownIn returns a Markdown file, or all below a folder: first that of the folder itself, then the others in alphabetical order.
func markdownIn(root fs.FS, source string) ([]string, error) {
	if strings.HasSuffix(source, ".md") {
		_, err := fs.Stat(root, source)
		return []string{source}, err
	}
	var files []string
	err := fs.WalkDir(root, source, func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") {
			files = append(files, name)
		}
		return err
	})
	own := path.Join(source, "README.md")
	slices.SortStableFunc(files, func(a, b string) int {
		switch {
		case a == own:
			return -1
		case b == own:
			return 1
		}
		return strings.Compare(a, b)
	})
	return files, err
}

// fileOf returns the file of the site for a Markdown file. The README of a folder is its index, as on GitHub.
func fileOf(source string) string {
	if base := path.Base(source); base == "README.md" {
		return path.Join(path.Dir(source), home)
	}
	return strings.TrimSuffix(source, ".md") + ".html"
}

// relative returns the link from a file of the site to another.
func relative(from, to string) string {
	link, err := filepath.Rel(path.Dir(from), to)
	if err != nil {
		return to
	}
	return filepath.ToSlash(link)
}

package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// repository is where a link leads to a file that is not in the site.
const repository = "https://github.com/vitistack/stack/blob/main/"

//go:embed page.html
var layout string

//go:embed style.css
var style []byte

//go:embed site.js
var script []byte

// renderer keeps raw HTML out: the documentation is the same on GitHub, which filters it.
var renderer = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// builder builds a site.
type builder struct {
	root  fs.FS
	out   string
	pages []*page
	// files are the files of the site by their sources.
	files map[string]string
	index []entry
}

// build renders the documentation of a repository into a folder, whose content it replaces, and returns the number of pages.
func build(root, out string) (int, error) {
	b := &builder{root: os.DirFS(root), out: out, files: map[string]string{}}
	var err error
	if b.pages, err = findPages(b.root); err != nil {
		return 0, err
	}
	for _, p := range b.pages {
		b.files[p.source] = p.file
	}
	if err := clear(out); err != nil {
		return 0, err
	}
	documents := make([]document, len(b.pages))
	for i, p := range b.pages {
		if documents[i], err = b.parse(p); err != nil {
			return 0, fmt.Errorf("read %s: %w", p.source, err)
		}
	}
	for i, p := range b.pages {
		if err := b.writePage(p, documents[i]); err != nil {
			return 0, fmt.Errorf("render %s: %w", p.source, err)
		}
	}
	index, err := encodeIndex(b.index)
	if err != nil {
		return 0, err
	}
	for name, content := range map[string][]byte{"style.css": style, "site.js": script, searchFile: index} {
		if err := b.write(name, content); err != nil {
			return 0, err
		}
	}
	return len(b.pages), nil
}

// clear removes an earlier site. Any other folder that has files is an error.
func clear(out string) error {
	files, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(files) == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(out, searchFile)); err != nil {
		return fmt.Errorf("%s has files and is no earlier site: name another folder with -out", out)
	}
	return os.RemoveAll(out)
}

// document is a parsed Markdown file.
type document struct {
	text []byte
	tree ast.Node
}

// parse reads a page, takes its title from its first heading, adds its sections to the search, and makes its links lead to files of the site.
func (b *builder) parse(p *page) (document, error) {
	source, err := fs.ReadFile(b.root, p.source)
	if err != nil {
		return document{}, err
	}
	d := document{text: source, tree: renderer.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(newAnchors()))))}
	p.title = titleOf(d)
	b.index = append(b.index, entriesOf(p, d)...)
	return d, b.moveLinks(p, d)
}

// moveLinks changes the links of a page from the repository to the site.
func (b *builder) moveLinks(p *page, d document) error {
	return ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(b.target(p, string(n.Destination)))
		case *ast.Image:
			err = b.copyImage(p, string(n.Destination))
		}
		return ast.WalkContinue, err
	})
}

// target returns where a link of a page leads in the site: to a page, or else to the repository.
func (b *builder) target(p *page, link string) string {
	name, anchor, hasAnchor := strings.Cut(link, "#")
	if name == "" || strings.Contains(name, ":") {
		return link
	}
	if hasAnchor {
		anchor = "#" + anchor
	}
	source := path.Join(path.Dir(p.source), name)
	for _, candidate := range []string{source, path.Join(source, "README.md")} {
		if file, ok := b.files[candidate]; ok {
			return relative(p.file, file) + anchor
		}
	}
	return repository + source + anchor
}

func (b *builder) copyImage(p *page, link string) error {
	if strings.Contains(link, ":") {
		return nil
	}
	source := path.Join(path.Dir(p.source), link)
	content, err := fs.ReadFile(b.root, source)
	if err != nil {
		return err
	}
	return b.write(path.Join(path.Dir(p.file), link), content)
}

// menuItem is a line of the navigation.
type menuItem struct {
	Title, Link string
	Current     bool
}

// menuSection is a part of the navigation with its lines.
type menuSection struct {
	Title string
	Items []menuItem
}

func (b *builder) menu(current *page) []menuSection {
	var menu []menuSection
	for _, s := range sections {
		part := menuSection{Title: s.Title}
		for _, p := range b.pages {
			if p.section == s.Title {
				part.Items = append(part.Items, menuItem{p.title, relative(current.file, p.file), p == current})
			}
		}
		menu = append(menu, part)
	}
	return menu
}

var pageTemplate = template.Must(template.New("page").Parse(layout))

func (b *builder) writePage(p *page, d document) error {
	var body, html bytes.Buffer
	if err := renderer.Renderer().Render(&body, d.text, d.tree); err != nil {
		return err
	}
	err := pageTemplate.Execute(&html, map[string]any{
		"Title": p.title, "Root": strings.TrimSuffix(relative(p.file, "x"), "x"), "Menu": b.menu(p), "Source": repository + p.source,
		"Body": template.HTML(body.String()), //nolint:gosec // rendered from the repository, without raw HTML
	})
	if err != nil {
		return err
	}
	return b.write(p.file, html.Bytes())
}

func (b *builder) write(name string, content []byte) error {
	file := filepath.Join(b.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/util"
)

// searchFile is the file of the site with the entries of the search.
const searchFile = "search.js"

// entry is a section of a page in the search.
type entry struct {
	Page    string `json:"page"`
	Heading string `json:"heading"`
	Link    string `json:"link"`
	Text    string `json:"text"`
}

// encodeIndex returns a script that has the entries. A script can be read without a server, other than JSON.
func encodeIndex(entries []entry) ([]byte, error) {
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	return []byte("window.searchIndex = " + string(text) + ";\n"), nil
}

// entriesOf returns an entry for each heading of a page, with the text up to the next one.
func entriesOf(p *page, d document) []entry {
	var all []entry
	for n := d.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if heading, ok := n.(*ast.Heading); ok || len(all) == 0 {
			e := entry{Page: p.title, Heading: p.title, Link: p.file}
			if ok && heading.Level > 1 {
				e.Heading = plain(heading, d.text)
				if id, found := heading.AttributeString("id"); found {
					e.Link += fmt.Sprintf("#%s", id)
				}
			}
			all = append(all, e)
			if ok {
				continue
			}
		}
		last := &all[len(all)-1]
		last.Text = strings.TrimSpace(last.Text + " " + plain(n, d.text))
	}
	return all
}

// titleOf returns the first heading of a document, or nothing.
func titleOf(d document) string {
	for n := d.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if heading, ok := n.(*ast.Heading); ok {
			return plain(heading, d.text)
		}
	}
	return ""
}

// plain returns the text in a node without markup, and with one space where lines or cells end.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// anchors makes the anchors of headings as GitHub does, so that a link works on both: lower case, without punctuation, spaces as
// hyphens, and a number for a heading that exists already.
type anchors struct{ used map[string]int }

func newAnchors() parser.IDs { return &anchors{used: map[string]int{}} }

// Generate implements parser.IDs.
func (a *anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(util.UnescapePunctuations(heading)))) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	id := b.String()
	n := a.used[id]
	a.used[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put implements parser.IDs.
func (a *anchors) Put(id []byte) { a.used[string(id)]++ }

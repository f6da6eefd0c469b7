// Package render makes the page that shows the API's description to people. Doing
// so at run time would make the gateway a third larger.
package render

import (
	"bytes"
	_ "embed" // for the template
	"fmt"
	"html/template"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed docs.html.tmpl
var page string

// HTML shows an OpenAPI document in YAML. The page needs its style sheet at
// docs.css, and nothing else.
func HTML(document []byte) ([]byte, error) {
	var api description
	if err := yaml.Unmarshal(document, &api); err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	parsed, err := template.New("docs").Funcs(template.FuncMap{"prose": prose}).Parse(page)
	if err != nil {
		return nil, fmt.Errorf("read the page of the API's description: %w", err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, api.contents()); err != nil {
		return nil, fmt.Errorf("write the page of the API's description: %w", err)
	}
	return out.Bytes(), nil
}

// description is as much of OpenAPI as is shown.
type description struct {
	Info struct {
		Title, Version, Description string
	}
	Tags  []struct{ Name, Description string }
	Paths map[string]map[string]struct {
		Tags        []string
		Summary     string
		Description string
		Parameters  []parameter
		RequestBody struct {
			Description string
			Content     map[string]media
		}
		Responses map[string]struct {
			Description string
			Content     map[string]media
		}
	}
	Components struct {
		Parameters map[string]parameter
		Schemas    map[string]schema
	}
}

type parameter struct {
	Ref         string `json:"$ref"`
	Name, In    string
	Description string
	Required    bool
	Schema      schema
}

type media struct{ Schema schema }

type schema struct {
	Ref         string `json:"$ref"`
	Type        any
	Format      string
	Description string
	Enum        []any
	Items       *schema
	Properties  map[string]schema
	Required    []string
}

// contents is what the page shows.
type contents struct {
	Title, Version string
	Intro          []string
	Groups         []group
	Schemas        []namedSchema
}

type group struct {
	Name, Description string
	Operations        []operation
}

type operation struct {
	ID, Method, Path, Summary string
	Description               []string
	Parameters                []parameter
	Bodies                    []body
	Responses                 []response
}

type body struct{ Media, Type, Link string }

type response struct {
	Code, Description string
	Bodies            []body
}

type namedSchema struct {
	Name   string
	Fields []field
}

type field struct {
	Name, Type, Link, Description string
}

func (d description) contents() contents {
	out := contents{Title: d.Info.Title, Version: d.Info.Version, Intro: paragraphs(d.Info.Description)}
	for _, tag := range d.Tags {
		out.Groups = append(out.Groups, group{Name: tag.Name, Description: tag.Description, Operations: d.operations(tag.Name)})
	}
	for _, name := range sorted(d.Components.Schemas) {
		out.Schemas = append(out.Schemas, namedSchema{Name: name, Fields: fields("", d.Components.Schemas[name])})
	}
	return out
}

func (d description) operations(tag string) []operation {
	var all []operation
	for _, path := range sorted(d.Paths) {
		for _, method := range sorted(d.Paths[path]) {
			o := d.Paths[path][method]
			if !slices.Contains(o.Tags, tag) {
				continue
			}
			shown := operation{
				ID:     strings.Trim(strings.NewReplacer("/", "-", "{", "", "}", "").Replace(method+path), "-"),
				Method: strings.ToUpper(method), Path: path, Summary: o.Summary, Description: paragraphs(o.Description),
				Bodies: bodies(o.RequestBody.Content),
			}
			for _, p := range o.Parameters {
				if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					p = d.Components.Parameters[name]
				}
				shown.Parameters = append(shown.Parameters, p)
			}
			for _, code := range sorted(o.Responses) {
				r := o.Responses[code]
				shown.Responses = append(shown.Responses, response{Code: code, Description: r.Description, Bodies: bodies(r.Content)})
			}
			all = append(all, shown)
		}
	}
	return all
}

func bodies(content map[string]media) []body {
	var all []body
	for _, name := range sorted(content) {
		kind, link := content[name].Schema.name()
		all = append(all, body{Media: name, Type: kind, Link: link})
	}
	return all
}

// fields lists the fields of an object, those of objects in it with a dot.
func fields(prefix string, s schema) []field {
	var all []field
	for _, name := range sorted(s.Properties) {
		p := s.Properties[name]
		kind, link := p.name()
		all = append(all, field{Name: prefix + name, Type: kind, Link: link, Description: p.describe()})
		if p.Items != nil {
			all = append(all, fields(prefix+name+"[].", *p.Items)...)
		}
		all = append(all, fields(prefix+name+".", p)...)
	}
	return all
}

// name is the type of a schema in words, and the named schema that it is.
func (s schema) name() (kind, link string) {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return name, name
	}
	if s.Items != nil {
		kind, link = s.Items.name()
		return "list of " + kind, link
	}
	switch t := s.Type.(type) {
	case string:
		kind = t
	case []any:
		var parts []string
		for _, part := range t {
			parts = append(parts, fmt.Sprint(part))
		}
		kind = strings.Join(parts, " or ")
	default:
		kind = "anything"
	}
	if s.Format != "" {
		kind += " (" + s.Format + ")"
	}
	return kind, ""
}

func (s schema) describe() string {
	if len(s.Enum) == 0 {
		return s.Description
	}
	var values []string
	for _, v := range s.Enum {
		if v != "" {
			values = append(values, fmt.Sprint(v))
		}
	}
	return strings.TrimSpace(strings.Join(values, ", ") + ". " + s.Description)
}

// run is a part of a text that is code, or is not.
type run struct {
	Text string
	Code bool
}

// prose returns the runs of a text of the description: what is in backticks is code. A text with an odd number of backticks is one
// run.
func prose(text string) []run {
	parts := strings.Split(text, "`")
	if len(parts)%2 == 0 {
		return []run{{Text: text}}
	}
	var runs []run
	for i, part := range parts {
		if part != "" {
			runs = append(runs, run{Text: part, Code: i%2 == 1})
		}
	}
	return runs
}

func paragraphs(text string) []string {
	var all []string
	for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if p != "" {
			all = append(all, p)
		}
	}
	return all
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

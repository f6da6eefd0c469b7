// Command readme writes the README.md of a chart from the comments in its values.yaml: readme CHART.
// It keeps everything before the heading Values.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const heading = "## Values\n"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("write readme CHART, the folder of the chart")
	}
	if err := write(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func write(chart string) error {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("read values.yaml: %w", err)
	}
	var table bytes.Buffer
	fmt.Fprint(&table, heading, "\n| value | default | |\n|---|---|---|\n")
	if err := rows(&table, "", doc.Content[0]); err != nil {
		return err
	}
	path := filepath.Join(chart, "README.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, _, found := strings.Cut(string(page), heading)
	if !found {
		return fmt.Errorf("%s has no heading Values", path)
	}
	return os.WriteFile(path, append([]byte(before), table.Bytes()...), 0o644)
}

// rows writes a line for each value with a comment below a mapping. A value without a comment is an
// error, unless it has nested values or repeats others.
func rows(out *bytes.Buffer, prefix string, mapping *yaml.Node) error {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		comment := strings.ReplaceAll(strings.TrimPrefix(key.HeadComment, "# "), "\n# ", " ")
		switch _, last, ok := strings.Cut(comment, "\n\n"); {
		case ok: // a comment before an empty line is about the file
			comment = strings.TrimPrefix(last, "# ")
		}
		if value.Kind == yaml.AliasNode && value.Alias.Kind != yaml.MappingNode {
			value = value.Alias
		}
		switch {
		case value.Kind == yaml.AliasNode:
			fmt.Fprintf(out, "| `%s` | as `%s%s` | |\n", name, prefix, value.Value)
		case comment != "":
			text, err := flow(value)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| `%s` | `%s` | %s |\n", name, text, comment)
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			if err := rows(out, name+".", value); err != nil {
				return err
			}
		default:
			return fmt.Errorf("values.yaml, line %d: say in a comment before it what %s is", key.Line, name)
		}
	}
	return nil
}

// flow formats a value on one line.
func flow(value *yaml.Node) (string, error) {
	if value.Kind == yaml.ScalarNode && value.Value == "" {
		return `""`, nil
	}
	one := *value
	one.Style, one.HeadComment, one.Anchor = yaml.FlowStyle, "", ""
	text, err := yaml.Marshal(&one)
	return strings.TrimSpace(string(text)), err
}

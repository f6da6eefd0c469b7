package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// eventsPage returns the page about the data of the CloudEvents in a folder of JSON Schemas, whose files have the names of the types.
func eventsPage(folder string) (string, error) {
	files, err := readFiles(filepath.Join(folder, "*.json"))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(`# Events

The data of the CloudEvents that other systems send and receive. Who sends each, and what an answer needs, is in [events](../../events/README.md).
`)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		var schema apiextensionsv1.JSONSchemaProps
		if err := json.Unmarshal(files[file], &schema); err != nil {
			return "", fmt.Errorf("read %s: %w", file, err)
		}
		name := filepath.Base(file)
		fmt.Fprintf(&b, "\n## %s\n\n%s\n[Schema](../../events/schemas/%s), [example](../../events/examples/%s).\n\n| field | type | |\n|---|---|---|\n",
			strings.TrimSuffix(name, ".json"), schema.Title, name, name)
		writeFields(&b, "data", &schema)
	}
	return b.String(), nil
}

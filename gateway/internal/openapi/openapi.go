// Package openapi is the description of the gateway's API, for programs and for
// people.
package openapi

import (
	_ "embed" // for the description itself
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:generate go run ./generate

//go:embed openapi.yaml
var document []byte

//go:embed docs.html
var docs []byte

//go:embed docs.css
var style []byte

// YAML is the description as it is written.
func YAML() []byte { return document }

// JSON is the description as JSON.
func JSON() ([]byte, error) {
	encoded, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	return encoded, nil
}

// HTML is a page that shows the description. It needs its style sheet at
// docs.css, and nothing else.
func HTML() []byte { return docs }

// Style is the style sheet of that page.
func Style() []byte { return style }

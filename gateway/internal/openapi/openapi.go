// Package openapi holds the OpenAPI description of the gateway's API, and the page that shows it.
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

// BasePath is the prefix of every path of the API.
const BasePath = "/api/v1"

// YAML returns the description as it is written.
func YAML() []byte { return document }

// JSON returns the description as JSON.
func JSON() ([]byte, error) {
	encoded, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	return encoded, nil
}

// HTML returns a page that shows the description. The page loads only its style sheet, docs.css beside it.
func HTML() []byte { return docs }

// Style returns the style sheet of that page.
func Style() []byte { return style }

// Package crds holds the CustomResourceDefinitions of Knative that the local engine installs.
package crds

import "embed"

//go:generate go run ./generate

// Files holds one CRD per file. They are Knative's own, without descriptions and without conversion webhooks, because
// no webhook runs here; go generate writes them.
//
//go:embed *.yaml
var Files embed.FS

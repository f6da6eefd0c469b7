// Package apis holds the resources of the stack: their Go types in the version
// packages below, and the CustomResourceDefinitions generated from them here.
package apis

import "embed"

// CRDs are the CustomResourceDefinitions, one file each in the folder crds.
//
//go:embed crds/*.yaml
var CRDs embed.FS

// Examples are manifests that work as they are, in the folder examples.
//
//go:embed examples/*.yaml
var Examples embed.FS

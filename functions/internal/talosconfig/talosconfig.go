// Package talosconfig reads talosconfigs, which a tenant may have written.
package talosconfig

import (
	"errors"

	"sigs.k8s.io/yaml"
)

// ErrDamaged is a document that is no talosconfig with a current context. It does not
// quote the document, since that holds secrets.
var ErrDamaged = errors.New("the document is no talosconfig with a current context")

// Context is where the nodes of a cluster are reached, and by which certificates, in
// PEM. Any of them may be missing.
type Context struct {
	Endpoints []string `json:"endpoints"`
	CA        []byte   `json:"ca"`
	Crt       []byte   `json:"crt"`
	Key       []byte   `json:"key"`
}

// Read reads the current context of a talosconfig. Its error is ErrDamaged. The
// package of Talos for this loads container networking too, at each cold start.
func Read(document []byte) (*Context, error) {
	var file struct {
		Context  string              `json:"context"`
		Contexts map[string]*Context `json:"contexts"`
	}
	if err := yaml.Unmarshal(document, &file); err != nil || file.Contexts[file.Context] == nil {
		return nil, ErrDamaged
	}
	return file.Contexts[file.Context], nil
}

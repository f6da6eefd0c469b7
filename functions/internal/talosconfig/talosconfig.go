// Package talosconfig reads talosconfigs that somebody else may have written.
package talosconfig

import (
	"errors"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"go.yaml.in/yaml/v4"
)

// ErrDamaged is a document that is no talosconfig with a current context. It does not
// quote the document, since that holds secrets.
var ErrDamaged = errors.New("the document is no talosconfig with a current context")

// Read reads a talosconfig and its current context. Its error is ErrDamaged.
func Read(data []byte) (*config.Config, *config.Context, error) {
	// The library dereferences contexts that are null.
	var shape struct {
		Contexts map[string]map[string]any `yaml:"contexts"`
	}
	if err := yaml.Unmarshal(data, &shape); err != nil {
		return nil, nil, ErrDamaged
	}
	for _, c := range shape.Contexts {
		if c == nil {
			return nil, nil, ErrDamaged
		}
	}
	file, err := config.FromBytes(data)
	if err != nil || file.Contexts[file.Context] == nil {
		return nil, nil, ErrDamaged
	}
	return file, file.Contexts[file.Context], nil
}

package talos

import (
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
)

// Encode writes a configuration as it is sent to a node.
func Encode(p config.Provider) ([]byte, error) {
	return p.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}

// EncodeRedacted writes a configuration for people, without any secret.
func EncodeRedacted(p config.Provider) ([]byte, error) {
	return Encode(p.RedactSecrets("REDACTED"))
}

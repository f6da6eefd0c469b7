// Package node runs the stack on a real node, with Knative and the stack as pods. README.md says what is real.
package node

import (
	_ "embed"
	"os"
	"path/filepath"

	"github.com/vitistack/stack/tests/stand/kubernetes"
)

// Manifests of what runs in the cluster before Knative.
var (
	//go:embed manifests/network.yaml
	networkManifest string
	//go:embed manifests/ingress.yaml
	ingressManifest string
)

// manifest returns a manifest of build.sh.
func manifest(folder, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "manifests", name+".yaml"))
	return kubernetes.WithAddresses(string(text)), err
}

package node

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
)

// Manifests of what runs in the cluster before Knative.
var (
	//go:embed manifests/network.yaml
	networkManifest string
	//go:embed manifests/dns.yaml
	dnsManifest string
	//go:embed manifests/ingress.yaml
	ingressManifest string
)

// withAddresses inserts the addresses of registry and DNS into a manifest.
func withAddresses(text string) string {
	return strings.NewReplacer("REGISTRY", registryURL, "DNS_SERVICE", dnsService).Replace(text)
}

// manifest returns a manifest of build.sh.
func manifest(folder, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, "manifests", name+".yaml"))
	return withAddresses(string(text)), err
}

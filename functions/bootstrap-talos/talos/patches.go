package talos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Patch is a strategic merge patch of machine configurations.
type Patch struct {
	// from names the key and the ConfigMap of the patch.
	from string
	configpatcher.Patch
}

// IsEmptyPatch reports whether a patch has comments and separators of documents at most.
func IsEmptyPatch(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// ReadPatch parses a patch. from names its place, for messages. JSON patches and invalid YAML
// are a UserError. The YAML library refuses a document that expands too much.
func ReadPatch(from string, text []byte) (Patch, error) {
	loaded, err := configpatcher.LoadPatch(text)
	if err != nil {
		return Patch{}, reconcile.UserError{Reason: "InvalidPatch", Message: fmt.Sprintf("%s is no patch of a machine configuration: %v", from, err)}
	}
	if _, merges := loaded.(configpatcher.StrategicMergePatch); !merges {
		return Patch{}, reconcile.UserError{Reason: "InvalidPatch", Message: from + " is a JSON patch, which a configuration of several documents cannot take: write the fields to change as YAML"}
	}
	return Patch{from: from, Patch: loaded}, nil
}

// PartsOfPatches returns the parts of the configurations that patches make which only a new node gets.
func PartsOfPatches(patches []Patch) (nodeconfig.Parts, error) {
	var all []configpatcher.Patch
	for _, p := range patches {
		all = append(all, p.Patch)
	}
	return nodeconfig.PartsOf(all)
}

// PartsOf returns the parts of an encoded configuration that only a new node gets.
func PartsOf(encoded []byte) (nodeconfig.Parts, error) {
	cfg, err := configloader.NewFromBytes(encoded)
	if err != nil {
		return nil, errors.New("read a rendered configuration: it cannot be read") // the cause could quote a secret
	}
	return nodeconfig.Read(cfg), nil
}

// apply returns the patched configuration of a node. A patch that changes the role, the cluster or the
// name of the node is a UserError, and so is one with arguments of the kernel that the node does not have.
func (p Patch) apply(before config.Provider, n NodeConfig) (config.Provider, error) {
	out, err := configpatcher.Apply(configpatcher.WithConfig(before), []configpatcher.Patch{p.Patch})
	if err != nil {
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: fmt.Sprintf("%s cannot be applied: %v", p.from, err)}
	}
	after, err := out.Config()
	if err != nil {
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: fmt.Sprintf("%s cannot be applied: %v", p.from, err)}
	}
	named := after.NetworkHostnameConfig()
	switch {
	case after.Machine() == nil || after.Cluster() == nil || after.Machine().Type() != before.Machine().Type():
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: p.from + " changes machine.type, which the pool determines: remove it"}
	case after.Machine().Security().Token() != before.Machine().Security().Token(), after.Cluster().ID() != before.Cluster().ID():
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: p.from + " changes the keys of the cluster, which would cut the node off: remove them"}
	case !n.IsAdopted && n.Installed.AddsKernelArguments(after):
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: p.from + " sets machine.install.extraKernelArgs, which a node ignores because it boots a disk image: " +
			"remove it, write the arguments into a schematic of the image factory (customization.extraKernelArgs), and its ID into spec.talos.schematic"}
	case named == nil || named.Hostname() != n.Name:
		return nil, reconcile.UserError{Reason: "InvalidPatch", Message: p.from + " changes the host name, which identifies the node: remove it"}
	}
	return after, nil
}

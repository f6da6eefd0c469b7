// Package clientconfig merges the kubeconfig and the talosconfig of a cluster into files of the user.
package clientconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/kubeconfig"
)

// Options say how a configuration is merged.
type Options struct {
	// Name is the name of the context in the file of the user.
	Name string
	// Overwrite allows that a context of the name that leads elsewhere is replaced.
	Overwrite bool
	// Use makes the context the current one. Without it the current context stays, unless there is
	// none.
	Use bool
}

// ConflictError says that the file of the user has a context of the name that leads elsewhere, or a user of the name that another context
// uses.
type ConflictError struct{ Name, UsedBy string }

func (e ConflictError) Error() string {
	if e.UsedBy != "" {
		return fmt.Sprintf("the file has a user %q, whose credentials context %q uses: write --name for another name, or --overwrite to replace them", e.Name, e.UsedBy)
	}
	return fmt.Sprintf("the file has a context %q that leads elsewhere: write --name for another name, or --overwrite to replace it", e.Name)
}

// Merger adds a cluster's configuration to the content of a file, which may be empty, and returns the
// new content. A second call with the same configuration returns the same content.
type Merger func(file, added []byte, o Options) ([]byte, error)

// MergeKubeconfig is the Merger of kubeconfigs. The context, the cluster and the user get the name. It
// replaces a context of the name that leads to the same server.
func MergeKubeconfig(file, added []byte, o Options) ([]byte, error) {
	config, err := clientcmd.Load(file)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	from, err := readKubeconfig(added)
	if err != nil {
		return nil, err
	}
	context := from.Contexts[from.CurrentContext]
	if context == nil || from.Clusters[context.Cluster] == nil || from.AuthInfos[context.AuthInfo] == nil {
		return nil, errors.New("the kubeconfig of the cluster has no current context")
	}
	target := from.Clusters[context.Cluster]
	if err := checkConflict(config, o.Name, target.Server); err != nil && !o.Overwrite {
		return nil, err
	}
	config.Clusters[o.Name] = target
	config.AuthInfos[o.Name] = from.AuthInfos[context.AuthInfo]
	config.Contexts[o.Name] = &clientcmdapi.Context{Cluster: o.Name, AuthInfo: o.Name, Namespace: context.Namespace, Extensions: context.Extensions}
	if o.Use || config.CurrentContext == "" {
		config.CurrentContext = o.Name
	}
	return clientcmd.Write(*config)
}

// checkConflict returns a ConflictError if a context of a name leads to another server, or another context uses the user of the name.
func checkConflict(config *clientcmdapi.Config, name, server string) error {
	if there := config.Clusters[name]; there != nil && there.Server != server {
		return ConflictError{Name: name}
	}
	if there := config.Contexts[name]; there != nil && there.Cluster != name {
		return ConflictError{Name: name}
	}
	for _, other := range slices.Sorted(maps.Keys(config.Contexts)) {
		if other != name && config.Contexts[other].AuthInfo == name && config.AuthInfos[name] != nil {
			return ConflictError{name, other}
		}
	}
	return nil
}

// CheckKubeconfig returns an error unless a kubeconfig has all its certificates, keys and tokens in itself: kubectl would run the
// programs and read the files that it names on the machine of the user. The error is one of kubeconfig.Load.
func CheckKubeconfig(document []byte) error {
	_, err := readKubeconfig(document)
	return err
}

func readKubeconfig(document []byte) (*clientcmdapi.Config, error) {
	config, err := kubeconfig.Load(document)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the cluster: %w", err)
	}
	return config, nil
}

// MergeTalosconfig is the Merger of talosconfigs. It replaces a context of the name that has an
// endpoint of the cluster. Fields that it does not know stay.
func MergeTalosconfig(file, added []byte, o Options) ([]byte, error) {
	config, err := readTalosconfig(file, "")
	if err != nil {
		return nil, err
	}
	from, err := readTalosconfig(added, " of the cluster")
	if err != nil {
		return nil, err
	}
	name, _ := from["context"].(string)
	context, ok := contextsOf(from)[name].(map[string]any)
	if !ok {
		return nil, errors.New("the talosconfig of the cluster has no current context")
	}
	contexts := contextsOf(config)
	if there, ok := contexts[o.Name].(map[string]any); ok && !o.Overwrite && !shareEndpoint(there, context) {
		return nil, ConflictError{Name: o.Name}
	}
	contexts = maps.Clone(contexts)
	contexts[o.Name] = context
	config["contexts"] = contexts
	if current, _ := config["context"].(string); o.Use || current == "" {
		config["context"] = o.Name
	}
	return yaml.Marshal(config)
}

func readTalosconfig(raw []byte, whose string) (map[string]any, error) {
	config := map[string]any{}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("read the talosconfig%s: it is not YAML", whose) // the error would quote keys
	}
	if config == nil {
		config = map[string]any{}
	}
	return config, nil
}

func contextsOf(config map[string]any) map[string]any {
	contexts, _ := config["contexts"].(map[string]any)
	if contexts == nil {
		return map[string]any{}
	}
	return contexts
}

func shareEndpoint(a, b map[string]any) bool {
	x, _ := a["endpoints"].([]any)
	y, _ := b["endpoints"].([]any)
	return slices.ContainsFunc(x, func(endpoint any) bool { return slices.Contains(y, endpoint) })
}

// Package manifest writes manifests from flags, as they are kept in Git.
package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/versions"
)

// Cluster is what a user asks for. An empty field is left out of the manifest, so that the stack's
// default applies.
type Cluster struct {
	Name, Namespace string
	// Version is a Kubernetes version, and Talos a Talos version.
	Version, Talos       string
	ControlPlanes        int
	ControlPlaneTemplate string
	// Workers are pools, each as NAME=REPLICAS or NAME=REPLICAS:TEMPLATE.
	Workers []string
	// Network is a NetworkNamespace, and Provider a MachineProvider.
	Network, Provider string
	Data              v1alpha1.ClusterData
	Protected         bool
	// Classes are the MachineClasses that templates may name beside the built-in sizes. AnyClass leaves
	// the names of templates unchecked, because the MachineClasses cannot be read.
	Classes  []v1alpha1.MachineClass
	AnyClass bool
}

// name is what metadata.name of a KubernetesCluster may be.
var name = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

// Object returns the KubernetesCluster. The error says which flag to change.
func (c Cluster) Object() (*v1alpha1.KubernetesCluster, error) {
	k := &v1alpha1.KubernetesCluster{}
	k.APIVersion, k.Kind = v1alpha1.GroupVersion.String(), "KubernetesCluster"
	k.Name, k.Namespace = c.Name, c.Namespace
	k.Spec.Data, k.Spec.NetworkNamespaceName, k.Spec.Protected = c.Data, c.Network, c.Protected
	t := &k.Spec.Topology
	t.Version = v1alpha1.KubernetesVersion(c.Version)
	t.ControlPlane.Replicas, t.ControlPlane.Template, t.ControlPlane.ProviderRef = int32(c.ControlPlanes), c.ControlPlaneTemplate, c.provider()
	if c.Talos != "" {
		k.Spec.Talos = &v1alpha1.TalosOptions{Version: c.Talos}
	}
	var err error
	for _, text := range c.Workers {
		pool, poolErr := c.parsePool(text)
		pool.ProviderRef = c.provider()
		if slices.ContainsFunc(t.Workers, func(other v1alpha1.WorkerPool) bool { return other.Name == pool.Name }) {
			poolErr = fmt.Errorf("--workers %s: two pools are called %s: give each a name of its own", text, pool.Name)
		}
		t.Workers, err = append(t.Workers, pool), errors.Join(err, poolErr)
	}
	return k, errors.Join(c.check(), err)
}

func (c Cluster) provider() *v1alpha1.ProviderReference {
	if c.Provider == "" {
		return nil
	}
	return &v1alpha1.ProviderReference{Name: c.Provider}
}

// check returns what the API server or a function would refuse.
func (c Cluster) check() error {
	var errs []error
	if len(c.Name) > 32 || !name.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("the name %q becomes part of host names: use at most 32 lower case letters, digits and -, beginning with a letter", c.Name))
	}
	if !slices.Contains([]int{1, 3, 5, 7}, c.ControlPlanes) {
		errs = append(errs, fmt.Errorf("--control-planes %d: write 1, 3, 5 or 7, because etcd needs an odd number of members", c.ControlPlanes))
	}
	if err := c.checkTemplate(c.ControlPlaneTemplate); err != nil {
		errs = append(errs, fmt.Errorf("--control-plane-template: %w", err))
	}
	var impossible versions.Error
	if _, err := versions.ResolveKubernetes(c.Version, cmp.Or(strings.TrimPrefix(c.Talos, "v"), versions.DefaultTalos)); errors.As(err, &impossible) {
		errs = append(errs, fmt.Errorf("--version %s: %s", c.Version, impossible.Message))
	}
	return errors.Join(errs...)
}

// checkTemplate returns an error for a template that names no size. An empty one is the default.
func (c Cluster) checkTemplate(template string) error {
	if template == "" || c.AnyClass {
		return nil
	}
	_, err := v1alpha1.FindMachineClass(template, c.Classes)
	return err
}

// NeedsClasses reports whether a template is not built in.
func (c Cluster) NeedsClasses() bool {
	templates := []string{c.ControlPlaneTemplate}
	for _, pool := range c.Workers {
		_, template, _ := strings.Cut(pool, ":")
		templates = append(templates, template)
	}
	return slices.ContainsFunc(templates, func(t string) bool { return t != "" && !v1alpha1.IsBuiltInClass(t) })
}

// parsePool reads NAME=REPLICAS or NAME=REPLICAS:TEMPLATE.
func (c Cluster) parsePool(text string) (v1alpha1.WorkerPool, error) {
	pool, size, ok := strings.Cut(text, "=")
	count, template, _ := strings.Cut(size, ":")
	replicas, err := strconv.ParseInt(count, 10, 32)
	if !ok || pool == "" || err != nil || replicas < 0 || replicas > 500 {
		return v1alpha1.WorkerPool{}, fmt.Errorf("--workers %s: write NAME=REPLICAS or NAME=REPLICAS:TEMPLATE with 0 to 500 replicas, for example workers=3:medium", text)
	}
	if err := c.checkTemplate(template); err != nil {
		return v1alpha1.WorkerPool{}, fmt.Errorf("--workers %s: %w", text, err)
	}
	return v1alpha1.WorkerPool{Name: pool, Replicas: int32(replicas), MachineProperties: v1alpha1.MachineProperties{Template: template}}, nil
}

// Content returns an object as it is written in a manifest, without what only the API server writes.
func Content(k *v1alpha1.KubernetesCluster) (map[string]any, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(k)
	if err != nil {
		return nil, err
	}
	delete(raw, "status")
	if metadata, ok := raw["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return raw, nil
}

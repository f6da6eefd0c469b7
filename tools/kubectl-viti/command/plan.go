package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/text"
)

// errChanges ends the command plan if an apply would change something.
var errChanges = errors.New("there are changes")

// planning is the command plan.
type planning struct {
	*program
	files  []string
	talos  string
	format string
}

func newPlan(p *program) *cobra.Command {
	l := &planning{program: p}
	cmd := &cobra.Command{
		Use: "plan -f FILE", GroupID: "look", Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Short: "Show what applying a manifest would do, and change nothing",
		Long: `Show what kubectl apply -f FILE would do: which fields change and what each change leads to, which machines are
created, drained, upgraded, replaced or restarted and in which order, what is refused, and whether hosts and addresses
suffice. The API server checks the manifest by a dry run, and the other checks are those of the functions.

Fields of the last applied manifest that FILE leaves out are removed, as kubectl apply does. An object of server-side
apply is compared by its field manager. FILE may have objects of other projects: they are named and not compared, and a
ConfigMap counts for the cluster that names it.

The exit code is 0 if nothing would change, 2 if something would, and 1 if something is refused or the command fails.`,
		Example: examples("kubectl viti plan -f shop.yaml", "kubectl viti plan -f network.yaml -f shop.yaml -o json"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringArrayVarP(&l.files, "filename", "f", nil, "manifest, folder of manifests, or - for the standard input. May be repeated")
	f.StringVar(&l.talos, "default-talos", versions.DefaultTalos, "Talos version of new clusters that name none, if the installation has another one")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	addOutput(cmd, &l.format)
	return cmd
}

func (l *planning) run(ctx context.Context) error {
	manifest, err := l.read()
	if err != nil {
		return err
	}
	c, err := l.connect()
	if err != nil {
		return err
	}
	documents, others, err := preview.ParseMixed(manifest, c.Namespace)
	if err != nil {
		return err
	}
	for _, o := range others {
		l.note(fmt.Sprintf("Document %d, %s %s, is of no kind of the stack and not compared: kubectl diff shows what its apply would change.", o.Index, o.Object.GetKind(), o.Object.GetName()))
	}
	for i := range documents {
		_, isNew := newNamespace(others, documents[i].Object.GetNamespace(), documents[i].Index)
		if err := c.DryRun(ctx, &documents[i], isNew); err != nil {
			return err
		}
	}
	world, err := l.world(ctx, c, documents)
	if err != nil {
		return err
	}
	world.ConfigMap = withConfigMaps(others, world.ConfigMap)
	world.NamespaceLabels = withNamespaces(others, world.NamespaceLabels)
	plan := preview.Make(documents, world)
	if l.format == "" {
		err = text.Plan(l.Out, plan)
	} else {
		err = text.Encode(l.Out, l.format, plan, text.Changed(plan)...)
	}
	switch {
	case err != nil:
		return err
	case !plan.Valid:
		return errFailed
	case plan.Changed:
		return errChanges
	}
	return nil
}

// newNamespace returns the labels of a Namespace that the manifest has before a document, and false if it has none.
func newNamespace(others []preview.Document, name string, document int) (map[string]string, bool) {
	for _, o := range others {
		if o.Object.GetKind() == "Namespace" && o.Object.GetName() == name && o.Index < document {
			return o.Object.GetLabels(), true
		}
	}
	return nil, false
}

// withNamespaces extends read, which returns the labels of a namespace, by the namespaces that the manifest creates.
func withNamespaces(others []preview.Document, read func(string) (map[string]string, error)) func(string) (map[string]string, error) {
	return func(name string) (map[string]string, error) {
		labels, err := read(name)
		if planned, isNew := newNamespace(others, name, math.MaxInt); isNew && apierrors.IsNotFound(err) {
			return planned, nil
		}
		return labels, err
	}
}

// withConfigMaps extends read, which returns the data of a ConfigMap, by the ConfigMaps of the manifest as they will be.
func withConfigMaps(others []preview.Document, read func(namespace, name string) (map[string]string, bool, error)) func(namespace, name string) (map[string]string, bool, error) {
	return func(namespace, name string) (map[string]string, bool, error) {
		for _, o := range others {
			if o.Object.GetKind() == "ConfigMap" && o.Object.GetNamespace() == namespace && o.Object.GetName() == name {
				data, _, err := unstructured.NestedStringMap(o.Object.Object, "data")
				return data, true, err
			}
		}
		return read(namespace, name)
	}
}

// read returns the manifests of all files as one.
func (l *planning) read() ([]byte, error) {
	if len(l.files) == 0 {
		return nil, errors.New("name the manifest: kubectl viti plan -f FILE, or -f - for the standard input")
	}
	var all [][]byte
	for _, name := range l.files {
		contents, err := l.readFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		all = append(all, contents...)
	}
	return bytes.Join(all, []byte("\n---\n")), nil
}

// readFile returns the content of a file, of the standard input, or of all manifests in a folder, as kubectl apply -f reads them.
func (l *planning) readFile(name string) ([][]byte, error) {
	if name == "-" {
		content, err := io.ReadAll(l.In)
		return [][]byte{content}, err
	}
	names := []string{name}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, e := range entries {
			if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
				names = append(names, filepath.Join(name, e.Name()))
			}
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("folder %s has no file with .yaml, .yml or .json", name)
		}
	}
	var all [][]byte
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, content)
	}
	return all, nil
}

// world returns what the user may read of the namespaces of documents, and the networks of all namespaces if documents
// have a network. What is missing is noted. The settings of the functions are not known to users.
func (l *planning) world(ctx context.Context, c *cluster.Connection, documents []preview.Document) (preview.World, error) {
	w := preview.World{DefaultTalos: l.talos, NamespaceLabels: func(namespace string) (map[string]string, error) {
		ns, err := c.Resource(cluster.Kind{Resource: "namespaces", Version: "v1"}.GVR()).Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("the labels of the namespace decide what it may use, and cannot be read: %w", err)
		}
		return ns.GetLabels(), nil
	}, ConfigMap: func(namespace, name string) (map[string]string, bool, error) {
		cm, err := c.Resource(cluster.Kind{Resource: "configmaps", Version: "v1"}.GVR()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		data, _, err := unstructured.NestedStringMap(cm.Object, "data")
		return data, true, err
	}}
	objects, err := c.Load(ctx, "", cluster.MustFindKind("machineprovider"), cluster.MustFindKind("machineclass"))
	if err != nil {
		return w, err
	}
	l.note(objects.Note())
	has := func(kind string) bool {
		return slices.ContainsFunc(documents, func(d preview.Document) bool { return d.Object.GetKind() == kind })
	}
	if has("NetworkNamespace") || has("NetworkConfiguration") {
		pools, err := c.Load(ctx, "", cluster.MustFindKind("networkpool"))
		if err != nil {
			return w, err
		}
		w.Unread.Pools = len(pools.Unreadable) > 0
		objects.All = append(objects.All, pools.All...)
	}
	if has("KubernetesCluster") || has("ClusterTemplate") {
		if err := l.loadTemplates(ctx, c, has("ClusterTemplate"), &w, &objects); err != nil {
			return w, err
		}
	}
	kinds := []cluster.Kind{cluster.MustFindKind("machine"), cluster.MustFindKind("networknamespace")}
	if has("NetworkNamespace") {
		kinds = append(kinds[:1], networkKinds...)
		networks, err := c.Load(ctx, "", networkKinds...)
		if err != nil {
			return w, err
		}
		w.Unread.OtherNetworks = len(networks.Unreadable) > 0
		objects.All = append(objects.All, networks.All...)
	}
	if err := l.loadNamespaces(ctx, c, documents, kinds, &objects); err != nil {
		return w, err
	}
	for i := range objects.All {
		if err := addTo(&w, &objects.All[i]); err != nil {
			return w, err
		}
	}
	return w, nil
}

// loadTemplates adds the ClusterTemplates to objects, and, for a change of one, the clusters of all namespaces with what
// they use.
func (l *planning) loadTemplates(ctx context.Context, c *cluster.Connection, withClusters bool, w *preview.World, objects *cluster.Objects) error {
	kinds := []cluster.Kind{cluster.MustFindKind("clustertemplate")}
	if withClusters {
		kinds = append(kinds, cluster.MustFindKind("kubernetescluster"), cluster.MustFindKind("machine"), cluster.MustFindKind("networknamespace"))
	}
	found, err := c.Load(ctx, "", kinds...)
	if err != nil {
		return err
	}
	w.Unread.Clusters = withClusters && len(found.Unreadable) > 0
	l.note(found.Note())
	objects.All = append(objects.All, found.All...)
	return nil
}

// networkKinds are the kinds of networks, and of the objects that have addresses in them.
var networkKinds = []cluster.Kind{cluster.MustFindKind("networknamespace"), cluster.MustFindKind("networkconfiguration"), cluster.MustFindKind("ipallocation")}

// loadNamespaces adds the objects of kinds in the namespaces of documents to those that it has already.
func (l *planning) loadNamespaces(ctx context.Context, c *cluster.Connection, documents []preview.Document, kinds []cluster.Kind, objects *cluster.Objects) error {
	has := map[string]bool{}
	for i := range objects.All {
		has[string(objects.All[i].GetUID())] = true
	}
	seen := map[string]bool{"": true}
	for _, d := range documents {
		namespace := d.Object.GetNamespace()
		if seen[namespace] {
			continue
		}
		seen[namespace] = true
		more, err := c.Load(ctx, namespace, kinds...)
		if err != nil {
			return err
		}
		l.note(more.Note())
		objects.All = append(objects.All, slices.DeleteFunc(more.All, func(u unstructured.Unstructured) bool { return has[string(u.GetUID())] })...)
	}
	return nil
}

// addTo adds an object to a world.
func addTo(w *preview.World, u *unstructured.Unstructured) error {
	switch u.GetKind() {
	case "MachineProvider":
		return appendTo(&w.Providers, u)
	case "MachineClass":
		return appendTo(&w.Classes, u)
	case "ClusterTemplate":
		return appendTo(&w.Templates, u)
	case "KubernetesCluster":
		return appendTo(&w.Clusters, u)
	case "NetworkPool":
		return appendTo(&w.Pools, u)
	case "NetworkConfiguration":
		return appendTo(&w.Configurations, u)
	case "IPAllocation":
		return appendTo(&w.Allocations, u)
	case "NetworkNamespace":
		return appendTo(&w.Networks, u)
	default:
		return appendTo(&w.Machines, u)
	}
}

// appendTo decodes an object into a new element of a list.
func appendTo[T any](list *[]T, u *unstructured.Unstructured) error {
	var object T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &object); err != nil {
		return err
	}
	*list = append(*list, object)
	return nil
}

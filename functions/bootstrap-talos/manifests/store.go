package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Store keeps what is generated for a cluster, before it is applied, for people
// to look at: in ConfigMaps beside the cluster, and where there is a disk also in
// a folder of files. Nothing in it is secret.
type Store struct {
	Kube *kube.Client
	// Dir is empty where there is no disk.
	Dir string
}

const (
	// configMapSuffix is what the names of the ConfigMaps have after the cluster's.
	configMapSuffix = "manifests"
	// workersPerConfigMap is how many workers share a ConfigMap: it holds 1 MiB, and a worker's
	// files take about 3 KiB before anybody patches them.
	workersPerConfigMap = 50
)

// configMapName is the name of the ConfigMap that keeps a file of a machine: one for the
// control planes, and for each pool as many as its numbers need.
func configMapName(cluster, file string) string {
	machine, _, _ := strings.Cut(file, ".")
	pool, number, ok := plan.ParseMachineName(cluster, machine)
	if pool == plan.ControlPlanePool || !ok {
		return kube.Name(cluster, configMapSuffix)
	}
	return kube.Name(cluster, configMapSuffix, pool, strconv.Itoa(number/workersPerConfigMap))
}

// Save keeps files, by name, beside those that were saved before, also while
// others save files of other names. A name is that of a machine, a dot, and a kind.
func (r *Store) Save(ctx context.Context, kc *v1alpha1.KubernetesCluster, files map[string][]byte) error {
	if err := r.saveFiles(kc, files); err != nil {
		return err
	}
	shelves := map[string]map[string]any{}
	for name, content := range files {
		at := configMapName(kc.Name, name)
		if shelves[at] == nil {
			shelves[at] = map[string]any{}
		}
		shelves[at][name] = string(content)
	}
	return r.writeConfigMaps(ctx, kc, shelves)
}

// Forget deletes what was saved of one machine.
func (r *Store) Forget(ctx context.Context, kc *v1alpha1.KubernetesCluster, machine string) error {
	gone := map[string]any{}
	for _, suffix := range []string{".yaml", ".talos.yaml"} {
		gone[machine+suffix] = nil
		if r.Dir == "" {
			continue
		}
		if err := os.Remove(filepath.Join(r.folderOf(kc), machine+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove results: %w", err)
		}
	}
	return r.writeConfigMaps(ctx, kc, map[string]map[string]any{configMapName(kc.Name, machine+".yaml"): gone})
}

// writeConfigMaps brings files to these contents, nil for none, by the names of their
// ConfigMaps.
func (r *Store) writeConfigMaps(ctx context.Context, kc *v1alpha1.KubernetesCluster, shelves map[string]map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(shelves)) {
		if err := r.writeConfigMap(ctx, kc, name, shelves[name]); err != nil {
			return err
		}
	}
	return nil
}

// writeConfigMap brings the files of one ConfigMap to these contents, and writes only those
// that differ.
func (r *Store) writeConfigMap(ctx context.Context, kc *v1alpha1.KubernetesCluster, name string, files map[string]any) error {
	cm := &corev1.ConfigMap{}
	err := r.Kube.Get(ctx, kc.Namespace, name, cm)
	if kube.NotFound(err) {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: kc.Namespace, Name: name, Labels: Labels(kc),
			OwnerReferences: kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		}, Data: map[string]string{}}
		for file, content := range files {
			if content != nil {
				cm.Data[file] = content.(string)
			}
		}
		if len(cm.Data) == 0 {
			return nil
		}
		if err = r.Kube.Create(ctx, cm); err == nil {
			return nil
		}
		if kube.AlreadyExists(err) {
			err = r.Kube.Get(ctx, cm.Namespace, cm.Name, cm)
		}
	}
	if err != nil {
		return err
	}
	if err := CheckOwner(cm, kc); err != nil {
		return err
	}
	changed := map[string]any{}
	for file, content := range files {
		old, saved := cm.Data[file]
		if (content == nil && saved) || (content != nil && (!saved || old != content)) {
			changed[file] = content
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return r.Kube.Merge(ctx, cm, map[string]any{"data": changed})
}

func (r *Store) saveFiles(kc *v1alpha1.KubernetesCluster, files map[string][]byte) error {
	if r.Dir == "" {
		return nil
	}
	folder := r.folderOf(kc)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	for name, content := range files {
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return fmt.Errorf("save results: %q is no name of a file", name)
		}
		path := filepath.Join(folder, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
			continue
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("save results: %w", err)
		}
	}
	return nil
}

// folderOf is <dir>/<cluster>, with the namespace before it for clusters outside of
// the namespace default. Neither name has a dot.
func (r *Store) folderOf(kc *v1alpha1.KubernetesCluster) string {
	if kc.Namespace == metav1.NamespaceDefault {
		return filepath.Join(r.Dir, kc.Name)
	}
	return filepath.Join(r.Dir, kc.Namespace+"."+kc.Name)
}

// DeleteAll deletes everything that was saved for a cluster.
func (r *Store) DeleteAll(ctx context.Context, kc *v1alpha1.KubernetesCluster) error {
	if r.Dir != "" {
		if err := os.RemoveAll(r.folderOf(kc)); err != nil {
			return fmt.Errorf("remove results: %w", err)
		}
	}
	list := &corev1.ConfigMapList{}
	mine := v1alpha1.LabelClusterName + "=" + kc.Name + "," + v1alpha1.LabelManagedBy + "=" + plan.FunctionName
	if err := r.Kube.List(ctx, kc.Namespace, mine, list); err != nil {
		return err
	}
	for i := range list.Items {
		if cm := &list.Items[i]; CheckOwner(cm, kc) == nil {
			if err := r.Kube.Delete(ctx, cm); err != nil {
				return err
			}
		}
	}
	return nil
}

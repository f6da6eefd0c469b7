// Package manifests renders the objects of a cluster, and saves them for users to read.
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Store saves what is generated for a cluster before it is applied: in ConfigMaps beside the
// cluster, and in files if there is a disk. It contains no secrets.
type Store struct {
	Kube *kube.Client
	// Dir is the folder of the files, empty if there is no disk.
	Dir string
}

const (
	// configMapSuffix follows the name of the cluster in the names of the ConfigMaps.
	configMapSuffix = "manifests"
	// workersPerConfigMap is the number of workers that share a ConfigMap. The
	// files of a worker take about 3 KiB without patches.
	workersPerConfigMap = 50
	// maxConfigMap is how many bytes the values of a ConfigMap may have (MaxSecretSize in
	// https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/types.go).
	maxConfigMap = 1 << 20
)

// configMapName returns the name of the ConfigMap for a file of a machine. The control planes
// have one, and each pool has one for every workersPerConfigMap workers.
func configMapName(cluster, file string) string {
	machine, _, _ := strings.Cut(file, ".")
	pool, number, ok := plan.ParseMachineName(cluster, machine)
	if pool == v1alpha1.ControlPlanePool || !ok {
		return kube.Name(cluster, configMapSuffix)
	}
	return kube.Name(cluster, configMapSuffix, pool, strconv.Itoa(number/workersPerConfigMap))
}

// Save saves files beside those saved before, also while another delivery saves other files. A
// file is named for a machine: shop-cp-0.yaml.
func (s *Store) Save(ctx context.Context, kc *v1alpha1.KubernetesCluster, files map[string][]byte) error {
	if err := s.saveFiles(kc, files); err != nil {
		return err
	}
	configMaps := map[string]map[string]any{}
	for name, content := range files {
		at := configMapName(kc.Name, name)
		if configMaps[at] == nil {
			configMaps[at] = map[string]any{}
		}
		configMaps[at][name] = string(content)
	}
	for _, name := range slices.Sorted(maps.Keys(configMaps)) {
		if err := s.addFiles(ctx, kc, name, configMaps[name]); err != nil {
			return err
		}
	}
	return nil
}

// Forget deletes the files of one machine.
func (s *Store) Forget(ctx context.Context, kc *v1alpha1.KubernetesCluster, machine string) error {
	gone := map[string]any{}
	for _, suffix := range []string{".yaml", ".talos.yaml"} {
		gone[machine+suffix] = nil
		if s.Dir == "" {
			continue
		}
		if err := os.Remove(filepath.Join(s.folderOf(kc), machine+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove results: %w", err)
		}
	}
	return s.writeConfigMap(ctx, kc, configMapName(kc.Name, machine+".yaml"), gone)
}

// addFiles adds files to a ConfigMap. It creates that of a new cluster without a read. If it exists, writeConfigMap compares
// the files, so that a delivery that is repeated after its write sends no other.
func (s *Store) addFiles(ctx context.Context, kc *v1alpha1.KubernetesCluster, name string, files map[string]any) error {
	if !meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionMachinesCreated) {
		if err := s.Kube.Create(ctx, newConfigMap(kc, name, files)); !kube.AlreadyExists(err) {
			return err
		}
	}
	return s.writeConfigMap(ctx, kc, name, files)
}

// newConfigMap returns the ConfigMap of a name with files, nil for none.
func newConfigMap(kc *v1alpha1.KubernetesCluster, name string, files map[string]any) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kc.Namespace, Name: name, Labels: Labels(kc),
			OwnerReferences: kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		},
		Data: withFiles(nil, files),
	}
}

// writeConfigMap writes the files of one ConfigMap that differ, nil for those to delete.
func (s *Store) writeConfigMap(ctx context.Context, kc *v1alpha1.KubernetesCluster, name string, files map[string]any) error {
	cm := &corev1.ConfigMap{}
	err := s.Kube.Get(ctx, kc.Namespace, name, cm)
	if kube.NotFound(err) {
		if cm = newConfigMap(kc, name, files); len(cm.Data) == 0 {
			return nil
		}
		if err = s.Kube.Create(ctx, cm); err == nil {
			return nil
		}
		if kube.AlreadyExists(err) {
			err = s.Kube.Get(ctx, cm.Namespace, cm.Name, cm)
		}
	}
	if err != nil {
		return err
	}
	if err := CheckOwner(cm, kc); err != nil {
		return err
	}
	changed, next := map[string]any{}, withFiles(cm.Data, files)
	for file, content := range next {
		if old, saved := cm.Data[file]; !saved || old != content {
			changed[file] = content
		}
	}
	for file := range cm.Data {
		if _, kept := next[file]; !kept {
			changed[file] = nil
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return s.Kube.Merge(ctx, cm, map[string]any{"data": changed})
}

// withFiles adds files to the data of a ConfigMap, and removes a file whose content is nil. If the files exceed the limit of a
// ConfigMap, a comment replaces each file that is larger than its share: users read the files, and no node needs them.
func withFiles(data map[string]string, files map[string]any) map[string]string {
	all := map[string]string{}
	maps.Copy(all, data)
	for file, content := range files {
		if content == nil {
			delete(all, file)
		} else {
			all[file] = content.(string)
		}
	}
	size := 0
	for _, content := range all {
		size += len(content)
	}
	if size <= maxConfigMap {
		return all
	}
	for file, content := range all {
		if len(content) > maxConfigMap/len(all) {
			all[file] = fmt.Sprintf("# This file of %d KiB is not saved, because its ConfigMap would exceed 1 MiB.\n", len(content)>>10)
		}
	}
	return all
}

// saveFiles writes files into the folder of the cluster, if there is a disk.
func (s *Store) saveFiles(kc *v1alpha1.KubernetesCluster, files map[string][]byte) error {
	if s.Dir == "" {
		return nil
	}
	folder := s.folderOf(kc)
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

// folderOf returns <dir>/<cluster>, or <dir>/<namespace>.<cluster> outside of the namespace
// default. Neither name has a dot.
func (s *Store) folderOf(kc *v1alpha1.KubernetesCluster) string {
	if kc.Namespace == metav1.NamespaceDefault {
		return filepath.Join(s.Dir, kc.Name)
	}
	return filepath.Join(s.Dir, kc.Namespace+"."+kc.Name)
}

// DeleteAll deletes everything that was saved for a cluster.
func (s *Store) DeleteAll(ctx context.Context, kc *v1alpha1.KubernetesCluster) error {
	if s.Dir != "" {
		if err := os.RemoveAll(s.folderOf(kc)); err != nil {
			return fmt.Errorf("remove results: %w", err)
		}
	}
	list := &corev1.ConfigMapList{}
	mine := v1alpha1.LabelClusterName + "=" + kc.Name + "," + v1alpha1.LabelManagedBy + "=" + plan.FunctionName
	if err := s.Kube.List(ctx, kc.Namespace, mine, list); err != nil {
		return err
	}
	for i := range list.Items {
		if cm := &list.Items[i]; CheckOwner(cm, kc) == nil {
			if err := s.Kube.Delete(ctx, cm); err != nil {
				return err
			}
		}
	}
	return nil
}

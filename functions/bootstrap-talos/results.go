package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// results keeps what is generated for a cluster, before it is applied, for people
// to look at: in a ConfigMap beside the cluster, and where there is a disk also in
// a folder of files. Nothing in it is secret.
type results struct {
	kube *kube.Client
	// dir is empty where there is no disk.
	dir string
}

// resultsName is what the name of the ConfigMap ends in.
const resultsName = "manifests"

// save keeps files, by name, beside those that were saved before, also while
// others save files of other names.
func (r *results) save(ctx context.Context, kc *v1alpha1.KubernetesCluster, files map[string][]byte) error {
	if err := r.saveFiles(kc, files); err != nil {
		return err
	}
	cm := &corev1.ConfigMap{}
	err := r.kube.Get(ctx, kc.Namespace, kube.Name(kc.Name, resultsName), cm)
	if kube.NotFound(err) {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: kc.Namespace, Name: kube.Name(kc.Name, resultsName), Labels: labelsOf(kc),
			OwnerReferences: kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		}, Data: text(files)}
		if err = r.kube.Create(ctx, cm); err == nil {
			return nil
		}
		if kube.AlreadyExists(err) {
			err = r.kube.Get(ctx, cm.Namespace, cm.Name, cm)
		}
	}
	if err != nil {
		return err
	}
	if err := belongs(cm, kc); err != nil {
		return err
	}
	for name, content := range files {
		if old, saved := cm.Data[name]; !saved || old != string(content) {
			return r.kube.Merge(ctx, cm, map[string]any{"data": text(files)})
		}
	}
	return nil
}

func text(files map[string][]byte) map[string]string {
	data := make(map[string]string, len(files))
	for name, content := range files {
		data[name] = string(content)
	}
	return data
}

func (r *results) saveFiles(kc *v1alpha1.KubernetesCluster, files map[string][]byte) error {
	if r.dir == "" {
		return nil
	}
	folder := r.folder(kc)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("save results: %w", err)
	}
	for name, content := range files {
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

// folder is <dir>/<cluster>, with the namespace before it for clusters outside of
// the namespace default. Neither name has a dot.
func (r *results) folder(kc *v1alpha1.KubernetesCluster) string {
	if kc.Namespace == metav1.NamespaceDefault {
		return filepath.Join(r.dir, kc.Name)
	}
	return filepath.Join(r.dir, kc.Namespace+"."+kc.Name)
}

// remove deletes everything that was saved for a cluster.
func (r *results) remove(ctx context.Context, kc *v1alpha1.KubernetesCluster) error {
	if r.dir != "" {
		if err := os.RemoveAll(r.folder(kc)); err != nil {
			return fmt.Errorf("remove results: %w", err)
		}
	}
	cm := &corev1.ConfigMap{}
	err := r.kube.Get(ctx, kc.Namespace, kube.Name(kc.Name, resultsName), cm)
	if kube.NotFound(err) || (err == nil && belongs(cm, kc) != nil) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.kube.Delete(ctx, cm)
}

// manifest is a Machine as a file that kubectl apply takes.
func manifest(m *v1alpha1.Machine) ([]byte, error) {
	m = m.DeepCopy()
	m.Status = v1alpha1.MachineStatus{}
	data, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write manifest of %s: %w", m.Name, err)
	}
	return data, nil
}

// forget deletes what was saved of one machine.
func (r *results) forget(ctx context.Context, kc *v1alpha1.KubernetesCluster, machine string) error {
	gone := map[string]any{}
	for _, suffix := range []string{".yaml", ".talos.yaml"} {
		gone[machine+suffix] = nil
		if r.dir == "" {
			continue
		}
		if err := os.Remove(filepath.Join(r.folder(kc), machine+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove results: %w", err)
		}
	}
	cm := &corev1.ConfigMap{}
	err := r.kube.Get(ctx, kc.Namespace, kube.Name(kc.Name, resultsName), cm)
	if kube.NotFound(err) || (err == nil && belongs(cm, kc) != nil) {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range gone {
		if _, saved := cm.Data[name]; saved {
			return r.kube.Merge(ctx, cm, map[string]any{"data": gone})
		}
	}
	return nil
}

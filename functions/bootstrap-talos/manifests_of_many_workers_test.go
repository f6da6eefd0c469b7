package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// TestManyWorkers saves the manifests of 300 workers of ten times the usual size. No single object of
// the API server can hold them.
func TestManyWorkers(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	server.Install(t)
	client, err := kube.New(server.Config(), "test", v1alpha1.AddToScheme, core)
	if err != nil {
		t.Fatal(err)
	}
	kc := &v1alpha1.KubernetesCluster{}
	kc.Namespace, kc.Name = server.Namespace(t), "shop"
	kc.Spec.Topology = v1alpha1.ClusterTopology{Version: "1.34", ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: 1}}
	if err := client.Create(t.Context(), kc); err != nil {
		t.Fatal(err)
	}
	r := &manifests.Store{Kube: client, Dir: t.TempDir()}
	files := map[string][]byte{"shop-cp-0.yaml": []byte("kind: Machine"), "shop-cp-0.talos.yaml": []byte("machine: {}")}
	for i := range 300 {
		files[fmt.Sprintf("shop-pool-%d.yaml", i)] = []byte("kind: Machine\n" + strings.Repeat("#", 10<<10))
		files[fmt.Sprintf("shop-pool-%d.talos.yaml", i)] = []byte("machine: {}\n" + strings.Repeat("#", 10<<10-100))
	}
	kept := func() (map[string]string, int) {
		t.Helper()
		list := &corev1.ConfigMapList{}
		if err := client.List(t.Context(), kc.Namespace, v1alpha1.LabelClusterName+"=shop", list); err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, cm := range list.Items {
			for name, content := range cm.Data {
				all[name] = content
			}
		}
		return all, len(list.Items)
	}
	for range 2 { // the second call has nothing to change
		if err := r.Save(t.Context(), kc, files); err != nil {
			t.Fatal(err)
		}
	}
	all, n := kept()
	if n != 7 || len(all) != len(files) {
		t.Fatalf("%d files in %d ConfigMaps, want %d in 7", len(all), n, len(files))
	}
	for name, content := range files {
		if all[name] != string(content) {
			t.Errorf("%s is not what was saved", name)
		}
	}
	if err := r.Forget(t.Context(), kc, "shop-pool-123"); err != nil {
		t.Fatal(err)
	}
	all, _ = kept()
	if _, ok := all["shop-pool-123.talos.yaml"]; ok || len(all) != len(files)-2 {
		t.Errorf("%d files are left, want those of the machine to be deleted", len(all))
	}
	for i := range 50 { // more than a ConfigMap holds
		files[fmt.Sprintf("shop-pool-%d.talos.yaml", i)] = []byte("machine: {}\n" + strings.Repeat("#", 40<<10))
	}
	for i := range 3 {
		files[fmt.Sprintf("shop-cp-%d.talos.yaml", i)] = []byte("machine: {}\n" + strings.Repeat("#", 400<<10))
	}
	if err := r.Save(t.Context(), kc, files); err != nil {
		t.Fatal(err)
	}
	all, _ = kept()
	for _, name := range []string{"shop-cp-0.yaml", "shop-pool-7.yaml", "shop-pool-77.talos.yaml"} {
		if all[name] != string(files[name]) {
			t.Errorf("%s is not what was saved, although it is small", name)
		}
	}
	for _, name := range []string{"shop-cp-2.talos.yaml", "shop-pool-7.talos.yaml"} {
		if !strings.HasPrefix(all[name], "# This file of 40") || !strings.Contains(all[name], "would exceed 1 MiB") {
			t.Errorf("%s: got %.100q, want a comment", name, all[name])
		}
	}
	if err := r.DeleteAll(t.Context(), kc); err != nil {
		t.Fatal(err)
	}
	if all, n = kept(); n != 0 {
		t.Errorf("%d files are left of a deleted cluster", len(all))
	}
}

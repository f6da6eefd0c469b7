package e2e

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/gitops"
)

// TestGitOps applies manifests in an order in which nothing that an object needs is there, one of
// them with a mistake, and reads what GitOps tools make of the objects.
func TestGitOps(t *testing.T) {
	t.Parallel()
	checks, err := gitops.ReadChecks(filepath.Join("..", "..", "docs", "argocd-health.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e := engine.Start(t)
	e.Apply("default", "apiVersion: vitistack.io/v1alpha1\nkind: EtcdBackup\nmetadata: {name: nightly}\nspec: {clusterName: simple-cluster, suspend: true, storageLocation: {type: local, path: backups}}\n")
	e.Apply("default", "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: stopped}\nspec: {template: small, powerState: Stopped, providerRef: {name: kubevirt}, networkNamespaceName: network}\n")
	e.Apply("default", "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: mistake}\nspec: {template: small, providerRef: {name: kubevirt}, networkNamespaceName: no-such-network}\n")
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	for _, tc := range []struct {
		reason          string
		resource        schema.GroupVersionResource
		namespace, name string
		kstatus, argoCD string
	}{
		{"the cluster runs", engine.KubernetesClusters, "default", "simple-cluster", "Current", "Healthy"},
		{"the network has its segment", engine.NetworkNamespaces, "default", "network", "Current", "Healthy"},
		{"the hypervisor answers", engine.MachineProviders, "", "kubevirt", "Current", "Healthy"},
		{"a control plane runs", engine.Machines, "default", "simple-cluster-cp-0", "Current", "Healthy"},
		{"its spec says that it is off", engine.Machines, "default", "stopped", "Current", "Suspended"},
		{"its spec says that no snapshot is taken", engine.EtcdBackups, "default", "nightly", "Current", "Suspended"},
		{"the network that it names does not exist", engine.Machines, "default", "mistake", "Failed", "Degraded"},
	} {
		feed.Until(t, tc.name+" is "+tc.kstatus+" and "+tc.argoCD+", because "+tc.reason, func() (bool, string) {
			o := e.Get(tc.resource, tc.namespace, tc.name)
			status, err := gitops.Kstatus(o)
			if err != nil {
				return false, err.Error()
			}
			health, message, err := checks.Health(o)
			if err != nil {
				return false, err.Error()
			}
			return status == tc.kstatus && health == tc.argoCD, status + ", " + health + ": " + message
		})
	}
	clusters := e.Client.Resource(engine.KubernetesClusters).Namespace("default")
	if _, err := clusters.Patch(t.Context(), "simple-cluster", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the paused cluster is Current and Suspended", func() (bool, string) {
		o := e.Get(engine.KubernetesClusters, "default", "simple-cluster")
		status, err := gitops.Kstatus(o)
		if err != nil {
			return false, err.Error()
		}
		health, message, err := checks.Health(o)
		return err == nil && status == "Current" && health == "Suspended", status + ", " + health + ": " + message
	})
}

// TestGitOpsRepository applies the files of the example repository in a random order. Each folder has all of its files
// in its kustomization.
func TestGitOpsRepository(t *testing.T) {
	t.Parallel()
	root := filepath.Join(engine.Root(), "docs", "gitops")
	var files []string
	for _, folder := range []string{"platform", "networks/shop", "teams/shop"} {
		files = append(files, kustomizationFiles(t, filepath.Join(root, folder))...)
	}
	rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	t.Logf("the order is %q", files)
	e := engine.Start(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e.Apply("", string(text))
	}
	e.UntilPhase(engine.Machines, "shop", "db", "Running")
	e.UntilPhase(engine.KubernetesClusters, "shop", "web", "Running")
}

// kustomizationFiles returns the paths of the files in a kustomization, which are all YAML files beside it.
func kustomizationFiles(t *testing.T, folder string) (files []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatalf("read the kustomization of %s: %v", folder, err)
	}
	for _, name := range kustomization.Resources {
		files = append(files, filepath.Join(folder, name))
	}
	found, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(found) != len(files)+1 {
		t.Fatalf("the kustomization of %s has %q, and the folder %q: %v", folder, files, found, err)
	}
	return files
}

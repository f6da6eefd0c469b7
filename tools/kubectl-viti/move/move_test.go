package move

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// TestSharedObjectsStay plans the move of a Machine, and removes here what has moved. A Secret that the Machine only names
// stays, because other workloads may use it.
func TestSharedObjectsStay(t *testing.T) {
	t.Parallel()
	secret, configMap := companions[0], companions[1]
	object := func(kind cluster.Kind, text string) *unstructured.Unstructured {
		return parse(t, kind, text).Unstructured
	}
	registry := `{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: registry, uid: s2}, data: {a: YQ==}}`
	here, _ := connect("https://here",
		object(cluster.MustFindKind("KubernetesCluster"), `{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {namespace: shop, name: web, uid: c}, spec: {talos: {patches: {all: [patches]}}}}`),
		object(cluster.MustFindKind("Machine"), `{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {namespace: shop, name: db, uid: m}, spec: {cloudInit: {secretRef: {name: registry}}}}`),
		object(secret, registry),
		object(secret, `{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: db-cloudinit, uid: s1, ownerReferences: [{kind: Machine, name: db, uid: m}]}}`),
		object(secret, `{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: web-kubeconfig, uid: s3, labels: {cluster.vitistack.io/cluster-name: web}}}`),
		object(secret, `{apiVersion: v1, kind: Secret, metadata: {namespace: shop, name: unrelated, uid: s4}}`),
		object(configMap, `{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: patches, uid: p}, data: {a: b}}`),
	)
	for because, tc := range map[string]struct {
		there []runtime.Object
		want  []string
	}{
		"the target has nothing":       {nil, []string{"ConfigMap patches is copied", "KubernetesCluster web moves", "Machine db moves", "Secret db-cloudinit moves", "Secret registry is copied", "Secret web-kubeconfig moves"}},
		"GitOps applies it at both":    {[]runtime.Object{object(secret, strings.Replace(registry, "s2", "other", 1))}, []string{"Secret registry moved already"}},
		"the target has other content": {[]runtime.Object{object(secret, strings.NewReplacer("s2", "other", "YQ==", "Yg==").Replace(registry))}, []string{"Secret registry decide"}},
	} {
		there, _ := connect("https://there", tc.there...)
		rows, err := (&Mover{From: here, To: there}).Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.Kind+" "+r.Name+" "+r.Action)
			if stays := strings.Contains(r.Note, "stays here"); stays != (r.Action == Copied) {
				t.Errorf("%s: the note of %s %s is %q", because, r.Kind, r.Name, r.Note)
			}
		}
		slices.Sort(got)
		if len(tc.there) > 0 {
			got = slices.DeleteFunc(got, func(row string) bool { return !strings.HasPrefix(row, "Secret registry ") })
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", because, diff)
		}
	}
	there, _ := connect("https://there")
	m := &Mover{From: here, To: there, Timeout: time.Second, Report: t.Logf}
	all, err := m.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.remove(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, kind := range slices.Concat(layers, companions) {
		list, err := here.In(kind, "shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			left = append(left, kind.Name+" "+o.GetName())
		}
	}
	if diff := cmp.Diff([]string{"Secret registry", "Secret unrelated", "ConfigMap patches"}, left); diff != "" {
		t.Errorf("left here (-want +got):\n%s", diff)
	}
}

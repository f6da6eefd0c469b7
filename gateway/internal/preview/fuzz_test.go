package preview

import (
	"context"
	"strings"
	"testing"
	"time"

	shared "github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// made returns the preview of a manifest.
func made(manifest string, now *inventory.Snapshot) (*Preview, error) {
	documents, err := shared.Parse([]byte(manifest), "default")
	if err != nil {
		return nil, err
	}
	return Make(context.Background(), documents, now, Existing{DefaultTalos: versions.DefaultTalos, NamespaceLabels: func(string) (map[string]string, error) { return nil, nil }}, false)
}

// TestMaliciousManifests previews manifests that expand to large documents or are deeply nested.
func TestMaliciousManifests(t *testing.T) {
	t.Parallel()
	nothing, _ := inventory.NewStore("e").Commit(time.Now())
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 10) + "]\n"
	}
	for name, text := range map[string]string{
		"Bomb": bomb, "Deep": strings.Repeat("[", 900_000), "Maps": strings.Repeat("{a: ", 200_000), "Binary": "\x00\xff",
		"Twice": "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nkind: KubernetesCluster\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			if p, err := made(text, nothing); err == nil {
				t.Errorf("made %+v", p)
			}
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func FuzzMake(f *testing.F) {
	for _, text := range []string{
		"apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: m}\nspec: {template: small}\n",
		"apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: c}\nspec: {data: {}, topology: {version: '1.33', controlplane: {replicas: 1}, workers: [{name: a, replicas: 2147483647}]}}\n",
		"apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nspec: {topology: {workers: [{replicas: -1}]}}\n", "kind: []\n", "null\n", "",
	} {
		f.Add([]byte(text))
	}
	nothing, _ := inventory.NewStore("e").Commit(time.Now())
	f.Fuzz(func(t *testing.T, manifest []byte) {
		if p, err := made(string(manifest), nothing); err == nil && p == nil {
			t.Errorf("%q became nothing", manifest)
		}
	})
}

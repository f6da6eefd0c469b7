package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
)

// env is an engine with helpers for one test.
type env struct {
	*engine.Engine
	t *testing.T
}

// patch applies a merge patch to an object.
func (u *env) patch(resource schema.GroupVersionResource, namespace, name, patch string) {
	u.t.Helper()
	client := u.Client.Resource(resource)
	var err error
	if namespace == "" {
		_, err = client.Patch(u.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	} else {
		_, err = client.Namespace(namespace).Patch(u.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	if err != nil {
		u.t.Fatalf("change %s %s: %v", resource.Resource, name, err)
	}
}

// shell runs commands as a user does who has kubectl with the plugin viti.
func shell(t *testing.T, e *engine.Engine, commands string) {
	t.Helper()
	bin := t.TempDir()
	kubectl := "#!/bin/sh\nexec " + engine.Local(t) + " kubectl \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(kubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "sh", "-euc", commands)
	sh.Dir = engine.Root()
	sh.Env = append(os.Environ(), "PATH="+bin+":"+engine.Bin(t)+":"+os.Getenv("PATH"), "KUBECONFIG="+e.Kubeconfig())
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
}

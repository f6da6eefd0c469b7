package install

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/stack/tests/stand/engine"
)

// namespace is the one that the manifests and the documentation name.
const namespace = "vitistack-system"

// helm runs Helm against a cluster, with the chart of the repository.
type helm struct {
	binary, kubeconfig, home string
	// namespace is the one of the release. The default is the constant of this name.
	namespace string
}

// newHelm builds Helm, if necessary, in the version that tools/ship names.
func newHelm(t testing.TB, config *rest.Config) *helm {
	t.Helper()
	command := exec.CommandContext(t.Context(), "make", "--silent", "helm")
	command.Dir = engine.Root()
	var said bytes.Buffer // messages about downloads
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		t.Fatalf("make helm: %v\n%s%s", err, said.Bytes(), out)
	}
	h := &helm{binary: string(bytes.TrimSpace(out)), home: t.TempDir()}
	h.kubeconfig = filepath.Join(h.home, "kubeconfig")
	if err := writeKubeconfig(h.kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	return h
}

func writeKubeconfig(path string, config *rest.Config) error {
	k := api.NewConfig()
	k.Clusters["c"] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos["u"] = &api.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	k.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	return clientcmd.WriteToFile(*k, path)
}

// run returns the output of Helm, in the namespace of the release.
func (h *helm) run(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, h.binary, append(args, "--namespace", cmp.Or(h.namespace, namespace))...)
	command.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig, "HELM_CACHE_HOME="+h.home, "HELM_CONFIG_HOME="+h.home, "HELM_DATA_HOME="+h.home)
	var out, errors bytes.Buffer
	command.Stdout, command.Stderr = &out, &errors
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, &errors)
	}
	return out.String(), nil
}

// render returns the objects of the chart with values and more arguments.
func (h *helm) render(t testing.TB, values string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := h.run(t.Context(), append([]string{"template", "vitistack", chart(), "--set", values}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// chart returns the folder of the chart.
func chart() string { return filepath.Join(engine.Root(), "charts", "vitistack") }

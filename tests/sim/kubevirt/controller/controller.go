// Package controller runs KubeVirt's own virt-controller for the simulator's API server. The code runs in the
// program of tests/judges/kubevirt/controller, because its dependencies do not build together with those of
// this module.
package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/stack/tests/sim/kubevirt"
)

// Install creates the CustomResourceDefinitions of the program's release that the API server of config lacks,
// and returns once all are served. It must be called before the simulator, which creates the definitions of
// another release. A second call changes nothing.
func Install(ctx context.Context, config *rest.Config, program string) error {
	out, err := exec.CommandContext(ctx, program, "definitions").Output()
	if err != nil {
		return fmt.Errorf("print the definitions of KubeVirt: %w", err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(io.MultiReader(bytes.NewReader(out), bytes.NewReader(cdiDefinitions)), 4096)
	var crds []*extv1.CustomResourceDefinition
	for {
		crd := &extv1.CustomResourceDefinition{}
		if err := decoder.Decode(crd); errors.Is(err, io.EOF) {
			return kubevirt.InstallDefinitions(ctx, config, crds)
		} else if err != nil {
			return fmt.Errorf("decode the definitions of KubeVirt: %w", err)
		}
		crds = append(crds, crd)
	}
}

// Start starts the program for the API server of config, whose user must be a cluster administrator with
// credentials in the configuration. The program ends with this process, and when stop is called, which must
// stay reachable until then. folder receives its configuration and its log.
func Start(config *rest.Config, program, folder string) (stop func(), err error) {
	kubeconfig := filepath.Join(folder, "virt-controller.kubeconfig")
	if err := writeKubeconfig(config, kubeconfig); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(folder, "virt-controller.log"))
	if err != nil {
		return nil, err
	}
	command := exec.Command(program, "--kubeconfig", kubeconfig, "--listen", "127.0.0.1", "--port", "0",
		"--launcher-image", "quay.io/kubevirt/virt-launcher:sim")
	command.Stdout, command.Stderr = log, log
	in, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start virt-controller: %w", err), log.Close())
	}
	return func() {
		_ = in.Close()
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
		_ = log.Close()
	}, nil
}

func writeKubeconfig(config *rest.Config, path string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["sim"] = &clientcmdapi.Cluster{
		Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile,
	}
	c.AuthInfos["sim"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		ClientCertificate: config.CertFile, ClientKey: config.KeyFile,
		Impersonate: kubevirt.ServiceAccount, ImpersonateGroups: []string{"system:masters"},
	}
	c.Contexts["sim"] = &clientcmdapi.Context{Cluster: "sim", AuthInfo: "sim"}
	c.CurrentContext = "sim"
	return clientcmd.WriteToFile(*c, path)
}

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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serviceAccount is the user of virt-controller, as virt-operator installs it. The webhooks of KubeVirt
// allow it to write what users may not.
const serviceAccount = "system:serviceaccount:kubevirt:kubevirt-controller"

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Install creates the CustomResourceDefinitions of the program's release that the API server of config lacks,
// and waits until all are served. It must be called before the simulator, which creates the definitions of
// another release. A second call changes nothing.
func Install(ctx context.Context, config *rest.Config, program string) error {
	out, err := exec.CommandContext(ctx, program, "definitions").Output()
	if err != nil {
		return fmt.Errorf("print the definitions of KubeVirt: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(io.MultiReader(bytes.NewReader(out), bytes.NewReader(cdiDefinitions)), 4096)
	for {
		crd := &unstructured.Unstructured{}
		if err := decoder.Decode(crd); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decode the definitions of KubeVirt: %w", err)
		}
		if _, err := client.Resource(crdResource).Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", crd.GetName(), err)
		}
		if err := awaitServed(ctx, client, crd.GetName()); err != nil {
			return fmt.Errorf("wait for %s: %w", crd.GetName(), err)
		}
	}
}

func awaitServed(ctx context.Context, client dynamic.Interface, name string) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		crd, err := client.Resource(crdResource).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})
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
		Impersonate: serviceAccount, ImpersonateGroups: []string{"system:masters"},
	}
	c.Contexts["sim"] = &clientcmdapi.Context{Cluster: "sim", AuthInfo: "sim"}
	c.CurrentContext = "sim"
	return clientcmd.WriteToFile(*c, path)
}

// Command kubevirt answers admission requests with the webhooks of KubeVirt's own virt-api, and writes the files of a
// cloud-init volume with the code of KubeVirt's own virt-launcher. KubeVirt's simulator asks it about each object.
//
// It prints the URL that it serves, and ends when its standard input is closed. It asks no API server: a
// VirtualMachine that refers to an instance type, a preference or a DataSource is not judged correctly.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
	virtlog "kubevirt.io/client-go/log"

	diskutils "kubevirt.io/kubevirt/pkg/ephemeral-disk-utils"
	netadmitter "kubevirt.io/kubevirt/pkg/network/admitter"
	"kubevirt.io/kubevirt/pkg/testutils"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks"
	mutating "kubevirt.io/kubevirt/pkg/virt-api/webhooks/mutating-webhook"
	validating "kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

func main() {
	log.SetFlags(0)
	virtlog.InitializeLogging("judge")
	virtlog.Log.SetIOWriter(io.Discard)
	diskutils.MockDefaultOwnershipManager() // this machine has no user qemu
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	folder, err := os.MkdirTemp("", "kubevirt-judge-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	handler, err := webhookHandler()
	if err != nil {
		return err
	}
	handler.Handle("POST /cloud-init", writer{folder: filepath.Join(folder, "cloud-init"), busy: &sync.Mutex{}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	fmt.Printf("http://%s\n", listener.Addr())
	return <-ended
}

// validateNetworks is the check of networks that virt-api adds to that of instances.
func validateNetworks(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec, cluster *virtconfig.ClusterConfig) []metav1.StatusCause {
	return netadmitter.Validate(at, spec, cluster)
}

// webhookHandler serves the webhooks under the paths of virt-api, for a cluster on amd64 without feature gates.
func webhookHandler() (*http.ServeMux, error) {
	kubevirt := &virtv1.KubeVirt{}
	kubevirt.Namespace, kubevirt.Name = "kubevirt", "kubevirt"
	kubevirt.Status.DefaultArchitecture = "amd64"
	cluster, _, _ := testutils.NewFakeClusterConfigUsingKVWithCPUArch(kubevirt, "amd64")
	client, err := kubecli.GetKubevirtClientFromRESTConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	presets, _ := testutils.NewFakeInformerFor(&virtv1.VirtualMachineInstancePreset{})
	informers := &webhooks.Informers{VMIPresetInformer: presets}
	accounts := webhooks.KubeVirtServiceAccounts("kubevirt")

	mux := http.NewServeMux()
	mux.HandleFunc("POST /virtualmachines-mutate", func(w http.ResponseWriter, r *http.Request) {
		mutating.ServeVMs(w, r, cluster, client)
	})
	mux.HandleFunc("POST /virtualmachineinstances-mutate", func(w http.ResponseWriter, r *http.Request) {
		mutating.ServeVMIs(w, r, cluster, informers, accounts)
	})
	mux.HandleFunc("POST /virtualmachines-validate", func(w http.ResponseWriter, r *http.Request) {
		validating.ServeVMs(w, r, cluster, client, informers, accounts)
	})
	mux.HandleFunc("POST /virtualmachineinstances-validate-create", func(w http.ResponseWriter, r *http.Request) {
		validating.ServeVMICreate(w, r, cluster, accounts, validateNetworks)
	})
	mux.HandleFunc("POST /virtualmachineinstances-validate-update", func(w http.ResponseWriter, r *http.Request) {
		validating.ServeVMIUpdate(w, r, cluster, accounts)
	})
	return mux, nil
}

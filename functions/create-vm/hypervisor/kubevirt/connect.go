package kubevirt

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/kubeconfig"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// kubeconfigKey is the key of the Secret of a KubeVirt in another cluster.
const kubeconfigKey = "kubeconfig"

// secretKeys says what a Secret with credentials has.
const secretKeys = "the kubeconfig of the KubeVirt cluster under the key " + kubeconfigKey

// Backend is the kind of hypervisor kubevirt.
var Backend = hypervisor.Backend{Kinds: kinds, Open: func(env hypervisor.Environment) hypervisor.Connector {
	return func(ctx context.Context, p *v1alpha1.MachineProvider) (hypervisor.Interface, error) {
		return connect(ctx, env, p)
	}
}}

// kinds are the kinds that the backend reads and writes, here or in the cluster of a
// kubeconfig.
var kinds = []func(*runtime.Scheme) error{
	v1alpha2.AddToScheme,
	kube.Kinds(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.Namespace{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{}, &corev1.NodeList{}),
	kube.Kinds(storagev1.SchemeGroupVersion, &storagev1.StorageClassList{}),
	kube.Kinds(kubevirtv1.GroupVersion, &kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineList{}, &kubevirtv1.VirtualMachineInstance{}, &kubevirtv1.KubeVirtList{}),
	kube.Kinds(cdiv1.SchemeGroupVersion, &cdiv1.DataVolume{}),
	kube.Kinds(attachmentVersion, &NetworkAttachmentDefinition{}),
}

// Local returns the KubeVirt of the cluster that the function runs in.
func Local(home *kube.Client) *Hypervisor { return &Hypervisor{home: home, guests: home, local: true} }

// connect returns the hypervisor of a MachineProvider of type kubevirt: this cluster,
// or that of the kubeconfig in its credentials.
func connect(ctx context.Context, env hypervisor.Environment, p *v1alpha1.MachineProvider) (hypervisor.Interface, error) {
	k := Local(env.Home)
	k.provider, k.defaults = p.Name, hypervisor.DefaultsOf(p)
	if p.Spec.KubeVirt != nil {
		k.options = *p.Spec.KubeVirt
	}
	if p.Spec.CredentialsRef == nil {
		if p.Spec.Endpoint != nil && p.Spec.Endpoint.URL != "" {
			_, err := env.Credentials.Of(ctx, p, secretKeys)
			return nil, err
		}
		return k, nil
	}
	data, err := env.Credentials.Of(ctx, p, secretKeys)
	if err != nil {
		return nil, err
	}
	config, err := remoteConfig(p, data[kubeconfigKey])
	if err != nil {
		return nil, err
	}
	if env.Wrap != nil {
		config.Wrap(env.Wrap)
	}
	k.local, k.endpoint = false, withoutCredentials(config.Host)
	k.guests, err = kube.NewRemote(config, hypervisor.FunctionName, kinds...)
	if err != nil {
		return nil, hypervisor.UnusableSecret(p, "the cluster of its kubeconfig cannot be reached with it: check its certificates and keys")
	}
	return k, nil
}

// remoteConfig reads a kubeconfig. The endpoint of the MachineProvider overrides its server.
func remoteConfig(p *v1alpha1.MachineProvider, document []byte) (*rest.Config, error) {
	if len(document) == 0 {
		return nil, hypervisor.UnusableSecret(p, "it has no key "+kubeconfigKey+": add the kubeconfig of the KubeVirt cluster under it")
	}
	config, err := kube.ReadKubeconfig(document)
	switch {
	case errors.Is(err, kubeconfig.ErrReachesHere):
		return nil, hypervisor.UnusableSecret(p, "its kubeconfig names a program or a file: write token, certificates and keys into it")
	case err != nil:
		return nil, hypervisor.UnusableSecret(p, "its key "+kubeconfigKey+" is not a kubeconfig with a current context: write one as kubectl config view --flatten --minify does")
	}
	t := &config.TLSClientConfig
	config.QPS = -1
	const defaultTimeout = 10 * time.Second
	config.Timeout = defaultTimeout
	if e := p.Spec.Endpoint; e != nil {
		if e.URL != "" {
			config.Host = e.URL
		}
		if e.CABundle != "" {
			t.CAData = []byte(e.CABundle)
		}
		if e.InsecureSkipVerify {
			t.Insecure, t.CAData = true, nil
		}
		if e.TimeoutSeconds > 0 {
			config.Timeout = time.Duration(e.TimeoutSeconds) * time.Second
		}
	}
	return config, nil
}

// Package watch fills a inventory.Store from the Kubernetes API and keeps it current.
package watch

import (
	"cmp"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// source is where the objects of a kind are listed and watched.
type source struct {
	kind inventory.Kind
	// object is the kind in the API, if it is not kind.
	object   string
	version  schema.GroupVersion
	resource string
	// namespace is empty for all namespaces.
	namespace string
	// name is that of the only object that is watched, and empty for all of the kind.
	name string
	// label is the label of the objects that are watched, and empty for all.
	label string
	// optional is a kind that the others do not wait for.
	optional bool
	list     func() runtime.Object
}

// sources are all the kinds. functions is the namespace of the stack's Knative
// Services, of its ConfigMaps of orphans and backends, and of its Leases.
func sources(functions string) []source {
	return []source{
		{inventory.KindNetwork, "", v1alpha2.GroupVersion, "networknamespaces", "", "", "", false, func() runtime.Object { return &v1alpha2.NetworkNamespaceList{} }},
		{inventory.KindConfiguration, "", v1alpha1.GroupVersion, "networkconfigurations", "", "", "", false, func() runtime.Object { return &v1alpha1.NetworkConfigurationList{} }},
		{inventory.KindAllocation, "", v1alpha2.GroupVersion, "ipallocations", "", "", "", false, func() runtime.Object { return &v1alpha2.IPAllocationList{} }},
		{inventory.KindMachine, "", v1alpha1.GroupVersion, "machines", "", "", "", false, func() runtime.Object { return &v1alpha1.MachineList{} }},
		{inventory.KindProvider, "", v1alpha1.GroupVersion, "machineproviders", "", "", "", false, func() runtime.Object { return &v1alpha1.MachineProviderList{} }},
		{inventory.KindCluster, "", v1alpha1.GroupVersion, "kubernetesclusters", "", "", "", false, func() runtime.Object { return &v1alpha1.KubernetesClusterList{} }},
		{inventory.KindBackup, "", v1alpha1.GroupVersion, "etcdbackups", "", "", "", true, func() runtime.Object { return &v1alpha1.EtcdBackupList{} }},
		{inventory.KindTemplate, "", v1alpha1.GroupVersion, "clustertemplates", "", "", "", true, func() runtime.Object { return &v1alpha1.ClusterTemplateList{} }},
		{inventory.KindNode, "", corev1.SchemeGroupVersion, "nodes", "", "", "", true, func() runtime.Object { return &corev1.NodeList{} }},
		{inventory.KindVM, "", inventory.KubeVirtGroupVersion, "virtualmachines", "", "", "", true, func() runtime.Object { return &inventory.VirtualMachineList{} }},
		{inventory.KindVMI, "", inventory.KubeVirtGroupVersion, "virtualmachineinstances", "", "", "", true, func() runtime.Object { return &inventory.VirtualMachineInstanceList{} }},
		{inventory.KindFunction, "", inventory.KnativeGroupVersion, "services", functions, "", "", true, func() runtime.Object { return &inventory.KnativeServiceList{} }},
		{inventory.KindReport, "", corev1.SchemeGroupVersion, "configmaps", functions, v1alpha1.ConfigMapOrphans, "", true, func() runtime.Object { return &corev1.ConfigMapList{} }},
		{inventory.KindBackends, "ConfigMap", corev1.SchemeGroupVersion, "configmaps", functions, backend.ConfigMapBackends, "", true, func() runtime.Object { return &corev1.ConfigMapList{} }},
		{inventory.KindLease, "", coordinationv1.SchemeGroupVersion, "leases", functions, "", v1alpha1.LabelHeartbeat, true, func() runtime.Object { return &coordinationv1.LeaseList{} }},
	}
}

// newScheme registers just the kinds that are watched, which keeps the start of
// the process short.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	scheme.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})
	scheme.AddKnownTypes(inventory.KubeVirtGroupVersion,
		&inventory.VirtualMachine{}, &inventory.VirtualMachineList{},
		&inventory.VirtualMachineInstance{}, &inventory.VirtualMachineInstanceList{})
	scheme.AddKnownTypeWithName(inventory.KnativeGroupVersion.WithKind("Service"), &inventory.KnativeService{})
	scheme.AddKnownTypeWithName(inventory.KnativeGroupVersion.WithKind("ServiceList"), &inventory.KnativeServiceList{})
	for _, gv := range []schema.GroupVersion{corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, inventory.KubeVirtGroupVersion, inventory.KnativeGroupVersion} {
		metav1.AddToGroupVersion(scheme, gv)
	}
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return scheme, nil
}

// narrowed has options select the objects that are watched.
func (s source) narrowed(options metav1.ListOptions) *metav1.ListOptions {
	options.LabelSelector = s.label
	if s.name != "" {
		options.FieldSelector = "metadata.name=" + s.name
	}
	return &options
}

// clients makes a client for each kind, all over one connection.
func clients(config *rest.Config, scheme *runtime.Scheme, all []source) (map[inventory.Kind]rest.Interface, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	serializers := serializer.NewCodecFactory(scheme).WithoutConversion()
	made := map[inventory.Kind]rest.Interface{}
	for _, s := range all {
		config := rest.CopyConfig(config)
		config.NegotiatedSerializer = oneKind{serializers, scheme, s.version.WithKind(cmp.Or(s.object, string(s.kind)))}
		config.GroupVersion = &s.version
		config.APIPath = "/apis"
		if s.version.Group == "" {
			config.APIPath = "/api"
		}
		if made[s.kind], err = rest.RESTClientForConfigAndClient(config, httpClient); err != nil {
			return nil, fmt.Errorf("connect to API %s: %w", s.version, err)
		}
	}
	return made, nil
}

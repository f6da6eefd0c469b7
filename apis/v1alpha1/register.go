package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is vitistack.io/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "vitistack.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&NetworkNamespace{}, &NetworkNamespaceList{},
		&NetworkConfiguration{}, &NetworkConfigurationList{},
		&Machine{}, &MachineList{},
		&MachineProvider{}, &MachineProviderList{},
		&MachineClass{}, &MachineClassList{},
		&NetworkPool{}, &NetworkPoolList{},
		&KubernetesCluster{}, &KubernetesClusterList{},
		&ClusterTemplate{}, &ClusterTemplateList{},
		&EtcdBackup{}, &EtcdBackupList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

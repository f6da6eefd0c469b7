package plan

import "github.com/vitistack/stack/apis/v1alpha1"

// FunctionName is the name of the function in labels, events and certificates.
const FunctionName = "bootstrap-talos"

// DefaultPort is where the API server of a cluster listens unless its spec names another port.
const DefaultPort = int32(6443)

// ClusterID returns the identifier of a cluster for external systems. It is the cluster's name
// if the spec has none.
func ClusterID(kc *v1alpha1.KubernetesCluster) string {
	if kc.Spec.Data.ClusterID != "" {
		return kc.Spec.Data.ClusterID
	}
	return kc.Name
}

// ServiceAccountKey returns the type of the key that signs the tokens of service accounts in a new
// cluster.
func ServiceAccountKey(kc *v1alpha1.KubernetesCluster) v1alpha1.ServiceAccountKeyType {
	if kc.Spec.Talos == nil || kc.Spec.Talos.ServiceAccountKey == "" {
		return v1alpha1.ServiceAccountKeyECDSA
	}
	return kc.Spec.Talos.ServiceAccountKey
}

// ConfigChangesOf returns how configurations are applied that need a reboot.
func ConfigChangesOf(kc *v1alpha1.KubernetesCluster) v1alpha1.ConfigChanges {
	if kc.Spec.Talos == nil || kc.Spec.Talos.ConfigChanges == "" {
		return v1alpha1.ConfigNoReboot
	}
	return kc.Spec.Talos.ConfigChanges
}

package plan

import "github.com/vitistack/stack/apis/v1alpha1"

// ServiceAccountKey returns the type of the key that signs the tokens of service accounts in a new
// cluster.
func ServiceAccountKey(kc *v1alpha1.KubernetesCluster) v1alpha1.ServiceAccountKeyType {
	if kc.Spec.Talos == nil || kc.Spec.Talos.ServiceAccountKey == "" {
		return v1alpha1.ServiceAccountKeyECDSA
	}
	return kc.Spec.Talos.ServiceAccountKey
}

package manifests

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// CheckOwner returns a UserError for an object that the cluster does not own, such as one of
// another cluster of the same name.
func CheckOwner(obj kube.Object, kc *v1alpha1.KubernetesCluster) error {
	if metav1.IsControlledBy(obj, kc) {
		return nil
	}
	return reconcile.UserError{Reason: "NameTaken", Message: fmt.Sprintf(
		"%s %s was not created for this cluster: run kubectl viti adopt -n %s if the cluster was restored, or else delete it, or give the cluster another name",
		kube.KindOf(obj), obj.GetName(), kc.Namespace)}
}

// Labels returns the labels of everything that belongs to a cluster.
func Labels(kc *v1alpha1.KubernetesCluster) map[string]string {
	return map[string]string{
		v1alpha1.LabelClusterName: kc.Name,
		v1alpha1.LabelClusterID:   labelSafe(plan.ClusterID(kc)),
		v1alpha1.LabelManagedBy:   plan.FunctionName,
	}
}

// labelSafe removes the characters from a text that a label value cannot have.
func labelSafe(s string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			return -1
		}
	}, s)
	return kube.LabelValue(strings.Trim(safe, "-_."))
}

// NewMachine returns the Machine of a member. image is the URL of its disk image, and network names its NetworkNamespace, or is
// empty for the only one.
func NewMachine(kc *v1alpha1.KubernetesCluster, p plan.Plan, m plan.Member, image, network string) *v1alpha1.Machine {
	labels := Labels(kc)
	labels[v1alpha1.LabelClusterRole] = m.Role
	labels[v1alpha1.LabelNodeRole] = m.Role
	labels[v1alpha1.LabelMachineTemplate] = m.Properties.Template
	annotations := map[string]string{}
	finalizers := []string{v1alpha1.FinalizerMachine}
	if m.Role == v1alpha1.RoleWorker {
		labels[v1alpha1.LabelWorkerGroup] = m.Pool
		annotations[v1alpha1.AnnotationNodePool] = m.Pool
	} else {
		finalizers = append(finalizers, v1alpha1.FinalizerEtcd)
	}
	return &v1alpha1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kc.Namespace, Name: m.Name, Labels: labels, Annotations: annotations,
			Finalizers:      finalizers,
			OwnerReferences: kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		},
		Spec: v1alpha1.MachineSpec{
			Template: m.Properties.Template, ProviderRef: m.Properties.ProviderRef,
			NetworkNamespaceName: network,
			CloudInit: &v1alpha1.CloudInit{SecretRef: &v1alpha1.CloudInitSecretReference{
				Name: v1alpha1.MachineConfigSecretName(m.Name), Key: v1alpha1.MachineConfigKey,
			}},
			OS: &v1alpha1.MachineOS{Family: "linux", Distribution: "talos", Version: p.Talos, Architecture: "amd64", ImageID: image},
		},
	}
}

// EncodeMachine returns a Machine as YAML for kubectl apply.
func EncodeMachine(m *v1alpha1.Machine) ([]byte, error) {
	m = m.DeepCopy()
	m.Status = v1alpha1.MachineStatus{}
	data, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write manifest of %s: %w", m.Name, err)
	}
	return data, nil
}

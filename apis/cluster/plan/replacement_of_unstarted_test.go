package plan

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestUnstartedOutdated(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because        string
		pool, template string
		runs           bool // the cluster has been Running
		image          bool
		edit           func(*v1alpha1.Machine)
		want           string
	}{
		"NoVM":          {"it cannot be created as it is", "web", "large", true, false, nil, "template large instead of small"},
		"NoVMImage":     {"its image does not exist", "web", "small", true, true, nil, "another image"},
		"Both":          {"both are named", "web", "large", false, true, nil, "template large instead of small, another image"},
		"Same":          {"it is as its pool says", "web", "small", false, false, nil, ""},
		"ControlPlane":  {"no host has room for the first machine", v1alpha1.ControlPlanePool, "medium", false, false, nil, "template medium instead of small"},
		"NewVM":         {"no host has room for its virtual machine", v1alpha1.ControlPlanePool, "medium", false, true, withVM, "template medium instead of small, another image"},
		"WorkerVM":      {"no host has room for its virtual machine", "web", "large", true, false, withVM, "template large instead of small"},
		"WorkerVMImage": {"Talos was upgraded since, and the node may have lost its configuration", "web", "small", true, true, withVM, ""},
		"MemberVM":      {"its disk may have data of etcd", v1alpha1.ControlPlanePool, "medium", true, true, withVM, ""},
		"Runs":          {"its node starts", "web", "large", false, true, func(m *v1alpha1.Machine) { withVM(m); m.Status.Phase = v1alpha1.MachineRunning }, ""},
		"Restarted":     {"its node has lost its configuration", "web", "large", true, false, func(m *v1alpha1.Machine) { withVM(m); m.Spec.RestartToken = "1" }, ""},
		"Installed":     {"its node has joined", "web", "large", true, false, func(m *v1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationInstalled] = "true" }, ""},
		"Leaving":       {"it is being deleted", "web", "large", true, false, func(m *v1alpha1.Machine) { m.DeletionTimestamp = &metav1.Time{} }, ""},
		"Protected":     {"a user protects it", "web", "large", true, false, func(m *v1alpha1.Machine) { m.Spec.Protected = true }, ""},
		"OtherPool":     {"its pool is not in the spec, and it is removed", "old", "large", true, true, nil, ""},
		"Operator":      {"the talos-operator has created it", "web", "large", true, true, func(m *v1alpha1.Machine) { m.Spec.CloudInit = nil }, ""},
	} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: "m", Annotations: map[string]string{}, Labels: map[string]string{v1alpha1.LabelClusterName: "shop", v1alpha1.LabelMachineTemplate: tc.template, v1alpha1.LabelWorkerGroup: tc.pool},
		}}
		if tc.pool == v1alpha1.ControlPlanePool {
			m.Labels[v1alpha1.LabelClusterRole] = v1alpha1.RoleControlPlane
		}
		m.Spec.Template = tc.template
		m.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.CloudInitSecretReference{Name: v1alpha1.MachineConfigSecretName("m"), Key: v1alpha1.MachineConfigKey}}
		if tc.edit != nil {
			tc.edit(m)
		}
		kc := &v1alpha1.KubernetesCluster{}
		if tc.runs {
			kc.Status.Version = "1.34.1"
		}
		p := Plan{Groups: []Group{
			{Pool: v1alpha1.ControlPlanePool, Role: v1alpha1.RoleControlPlane, Properties: v1alpha1.MachineProperties{Template: "small"}},
			{Pool: "web", Role: v1alpha1.RoleWorker, Properties: v1alpha1.MachineProperties{Template: "small"}},
		}}
		got := p.UnstartedOutdated(kc, map[string]*v1alpha1.Machine{"m": m}, func(*v1alpha1.Machine) bool { return tc.image })
		if got["m"] != tc.want {
			t.Errorf("%s, because %s: got %q, want %q", name, tc.because, got["m"], tc.want)
		}
	}
}

func withVM(m *v1alpha1.Machine) { m.Status.VMName, m.Status.Phase = "m", v1alpha1.MachineCreating }

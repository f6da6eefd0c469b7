package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// TestCredentialsOfOthers has a MachineProvider name a Secret in a namespace that the platform team
// has not listed. The function does not read the Secret, whether it exists or not.
func TestCredentialsOfOthers(t *testing.T) {
	t.Parallel()
	r := newEnv(t, kubevirtSite)
	theirs := apiserver.Start(t).Namespace(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: theirs, Name: "root"}, Data: map[string][]byte{"kubeconfig": []byte("hello")}}
	if err := r.Kube.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"root", "missing"} {
		p := &v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "theirs-" + name + "-" + r.Namespace}, Spec: v1alpha1.MachineProviderSpec{
			Type: v1alpha1.ProviderKubeVirt, CredentialsRef: &v1alpha1.SecretReference{Namespace: theirs, Name: name},
		}}
		if err := r.Kube.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		r.dropProvider(p.Name)
		if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), lookAtProvider(p.Name, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
		if err := r.Kube.Get(t.Context(), "", p.Name, p); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || p.Status.Phase != v1alpha1.ProviderFailed || ready.Reason != "CredentialsNotAllowed" || !strings.Contains(ready.Message, "read only from "+r.Namespace) ||
			!strings.Contains(ready.Message, "have "+theirs+" added to CREDENTIALS_NAMESPACES") {
			t.Errorf("MachineProvider %s is %s: %+v", p.Name, p.Status.Phase, ready)
		}
	}
}

// TestSecretsNotAllowed has Machines need Secrets in a namespace where the function lacks rights: one
// that the Machine names, and one that the function creates. Deliveries are not retried. Once the
// function has the rights, reconciliation and deletion continue.
func TestSecretsNotAllowed(t *testing.T) {
	t.Parallel()
	r := newEnv(t, kubevirtSite)
	all := r.Config
	r.Config = apiserver.Start(t).WithoutSecrets(t)
	r.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{v1alpha1.LabelCloudInit: "true"}}, Data: map[string][]byte{"userdata": []byte("#cloud-config\n")}})
	r.CreateMachine("makes")
	reads := machineWith("reads", func(m *v1alpha1.MachineSpec) {
		m.ProviderRef = &v1alpha1.ProviderReference{Name: r.Site.Provider}
		m.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.CloudInitSecretReference{Name: "mine", Key: "userdata"}}
	})
	r.Create(reads)
	for name, verb := range map[string]string{"makes": "create", "reads": "get"} {
		m := r.Drive(name, &hypervisortest.Wire{}, "reports that it lacks rights", hypervisortest.HasReason("SecretsNotAllowed"))
		message := condition(m, "Ready")
		for _, part := range []string{"cannot " + verb + ` resource "secrets"`, `in the namespace "` + r.Namespace + `"`, "secrets.namespaces"} {
			if !strings.Contains(message, part) {
				t.Errorf("Machine %s: %q does not say %q", name, message, part)
			}
		}
		if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), hypervisortest.ResyncEvent(r.Namespace, name)); err != nil {
			t.Errorf("Machine %s is retried, although a retry changes nothing: %v", name, err)
		}
	}
	limited := r.Config
	r.Config = all
	for _, name := range []string{"makes", "reads"} {
		m := r.Drive(name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
		if err := r.Kube.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	r.Config = limited
	r.Drive("makes", &hypervisortest.Wire{}, "keeps its Secret", hypervisortest.HasReason("SecretsNotAllowed"))
	r.Config = all
	r.Drive("makes", &hypervisortest.Wire{}, "is gone", hypervisortest.IsGone)
}

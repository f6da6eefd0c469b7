package main

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	kubevirtsim "github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// kubeconfigFor returns a kubeconfig for the administrator of a cluster.
func kubeconfigFor(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	doc, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// remoteSite returns the site of KubeVirt in a cluster other than that of the Machines.
func remoteSite(remote *rest.Config) func(*env) *hypervisortest.Site {
	return func(r *env) *hypervisortest.Site {
		guests, err := kube.New(remote, "test", testKinds...)
		if err != nil {
			r.Fatal(err)
		}
		if err := guests.Create(r.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace}}); err != nil {
			r.Fatal(err)
		}
		simulate(r.T, remote, kubevirtsim.Options{Namespace: r.Namespace})
		r.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "remote"}, Data: map[string][]byte{"kubeconfig": kubeconfigFor(r.T, remote)}})
		provider := &v1alpha1.MachineProvider{
			ObjectMeta: metav1.ObjectMeta{Name: "remote-" + r.Namespace},
			Spec: v1alpha1.MachineProviderSpec{
				Type: v1alpha1.ProviderKubeVirt, CredentialsRef: &v1alpha1.SecretReference{Namespace: r.Namespace, Name: "remote"},
			},
		}
		if err := r.Kube.Create(r.Context(), provider); err != nil {
			r.Fatal(err)
		}
		r.dropProvider(provider.Name)
		return kubevirtCluster(r, remote, provider.Name)
	}
}

func TestRemoteAPIServer(t *testing.T) {
	t.Parallel()
	remote := apiserver.StartAnother(t).Config()
	t.Run("contract", func(t *testing.T) {
		hypervisortest.RunWithoutFaults(t, func(t *testing.T) *hypervisortest.Env { return newEnv(t, remoteSite(remote)).Env })
		t.Run("status and owners", func(t *testing.T) { checkRemoteStatus(t, remote) })
		t.Run("credentials", func(t *testing.T) { elsewhereCredentials(t, remote) })
	})
}

// checkRemoteStatus checks what differs in a remote cluster: objects have no owner references, and the
// Machine has a next check, because no events arrive.
func checkRemoteStatus(t *testing.T, remote *rest.Config) {
	t.Parallel()
	r := newEnv(t, remoteSite(remote))
	guests, err := kube.New(remote, "test", testKinds...)
	if err != nil {
		t.Fatal(err)
	}
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	if m.Status.NextCheckTime == nil || m.Status.ProviderID != "kubevirt://"+r.Site.Provider+"/"+r.Namespace+"/m1" {
		t.Errorf("next check %v, provider id %s", m.Status.NextCheckTime, m.Status.ProviderID)
	}
	vm, claim := &kubevirtv1.VirtualMachine{}, &corev1.PersistentVolumeClaim{}
	if err := guests.Get(t.Context(), r.Namespace, "m1", vm); err != nil {
		t.Fatal(err)
	}
	if err := guests.Get(t.Context(), r.Namespace, "m1-root", claim); err != nil {
		t.Fatal(err)
	}
	if len(vm.OwnerReferences)+len(claim.OwnerReferences) > 0 {
		t.Errorf("an owner reference across clusters makes garbage collection delete %v, %v", vm.OwnerReferences, claim.OwnerReferences)
	}
	err = kube.OnConflict(func() error { // KubeVirt may still write it
		if err := guests.Get(t.Context(), r.Namespace, "m1", vm); err != nil {
			return err
		}
		halted, before := kubevirtv1.RunStrategyHalted, vm.DeepCopy()
		vm.Spec.RunStrategy = &halted
		_, err := guests.Patch(t.Context(), before, vm)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "is started again by resync", func(*v1alpha1.Machine) bool {
		err := guests.Get(t.Context(), r.Namespace, "m1", vm)
		return err == nil && *vm.Spec.RunStrategy == kubevirtv1.RunStrategyAlways
	})
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

func elsewhereCredentials(t *testing.T, remote *rest.Config) {
	t.Parallel()
	r := newEnv(t, remoteSite(remote))
	good := string(kubeconfigFor(t, remote))
	set := func(data map[string][]byte) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: "remote"}}
		hypervisortest.Change(r.Env, secret, func(s *corev1.Secret) { s.Data = data })
	}
	says := func(m *v1alpha1.Machine) string {
		if c := meta.FindStatusCondition(m.Status.Conditions, "Ready"); c != nil {
			return c.Reason + ": " + c.Message
		}
		return ""
	}
	cases := []struct{ reason, kubeconfig, says string }{
		{"the Secret has no such key", "", "has no key kubeconfig"},
		{"the value is no kubeconfig", "hello: world", "not a kubeconfig"},
		{"it would run a program", strings.Replace(good, "client-certificate-data:", "exec: {apiVersion: client.authentication.k8s.io/v1, command: id, interactiveMode: Never}\n    client-certificate-data:", 1), "names a program or a file"},
		{"it would read a file", strings.Replace(good, "client-certificate-data:", "tokenFile: /etc/passwd\n    client-certificate-data:", 1), "names a program or a file"},
	}
	expired := regexp.MustCompile(`client-certificate-data: .*\n\s*client-key-data: .*`).ReplaceAllString(good, "token: expired")
	cases = append(cases, struct{ reason, kubeconfig, says string }{"it has expired", expired, "does not accept its credentials"})
	r.CreateMachine("m1")
	for _, tc := range cases {
		set(map[string][]byte{"kubeconfig": []byte(tc.kubeconfig)})
		m := r.Drive("m1", &hypervisortest.Wire{}, tc.reason, func(m *v1alpha1.Machine) bool { return strings.Contains(says(m), tc.says) })
		if m.Status.Phase != v1alpha1.MachinePending || !strings.HasPrefix(says(m), "CredentialsInvalid: ") || !strings.Contains(says(m), "of MachineProvider "+r.Site.Provider) {
			t.Errorf("%s: phase %s, %s", tc.reason, m.Status.Phase, says(m))
		}
	}
	set(map[string][]byte{"kubeconfig": []byte(good)})
	r.DeleteMachine(r.Drive("m1", &hypervisortest.Wire{}, "runs with the new credentials, without a restart", hypervisortest.IsRunning), &hypervisortest.Wire{})
}

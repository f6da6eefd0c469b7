package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	kubevirtsim "github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

// env is a namespace of an API server with a network. The test plays layer 2 and runs the function.
type env struct {
	*hypervisortest.Env
	// function receives the events of the namespace if newKubeVirtEnv has created the env.
	function *function
}

// newEnv returns an env with a site. Only the test delivers events to the function.
func newEnv(t *testing.T, at func(*env) *hypervisortest.Site) *env {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t)
	client, err := kube.New(server.Config(), "test", testKinds...)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{Env: hypervisortest.New(t, server.Config(), client, server.Namespace(t))}
	feed.Run(t, e.Config, e.Namespace, e.Layer2(), feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"})
	e.NewHandler = func(w *hypervisortest.Wire) events.Handler { return e.process(w).handle }
	e.Site = at(e)
	return e
}

// process returns a newly started function whose requests pass through w.
func (e *env) process(w *hypervisortest.Wire) *function {
	e.Helper()
	config := rest.CopyConfig(e.Config)
	config.Wrap(w.Wrap)
	client, err := kube.New(config, hypervisor.FunctionName, kinds()...)
	if err != nil {
		e.Fatal(err)
	}
	return newFunction(client, testConnector(client, e.Namespace, w.Wrap), e.Clock.Now)
}

// deliver delivers one event to a process.
func deliver(ctx context.Context, f *function, e event.Event) error {
	_, err := f.handle(ctx, e)
	return err
}

// testConnector returns a connector for all backends. It reads credentials from a namespace, and wraps
// the connections that do not use the client.
func testConnector(client *kube.Client, namespace string, wrap func(http.RoundTripper) http.RoundTripper) hypervisor.Connector {
	return connectBackends(backends, hypervisor.Environment{Home: client, Credentials: hypervisor.Credentials{Home: client, Namespaces: []string{namespace}}, Namespace: kube.Namespace(os.Getenv), Wrap: wrap})
}

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// setUp returns an env with KubeVirt in this cluster, whose function receives every event.
func setUp(t *testing.T) *env {
	t.Helper()
	return setUpWith(t, kubevirtsim.Options{})
}

// setUpWith is setUp with options for the simulator of KubeVirt.
func setUpWith(t *testing.T, options kubevirtsim.Options) *env {
	t.Helper()
	e := newEnv(t, func(e *env) *hypervisortest.Site {
		options.Namespace = e.Namespace
		simulate(t, e.Config, options)
		e.defaultProvider()
		return &hypervisortest.Site{Provider: "kubevirt"}
	})
	e.function = newFunction(e.Kube, testConnector(e.Kube, e.Namespace, nil), time.Now)
	feed.Run(t, e.Config, e.Namespace, e.function.handle,
		feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("machines"), Name: "Machine"},
		feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"},
		feed.Kind{Resource: kubevirtv1.GroupVersion.WithResource("virtualmachines"), Name: "VirtualMachine"},
		feed.Kind{Resource: kubevirtv1.GroupVersion.WithResource("virtualmachineinstances"), Name: "VirtualMachineInstance"},
		feed.Kind{Resource: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), Name: "PersistentVolumeClaim"},
	)
	return e
}

// example applies the first object of a manifest in apis/examples.
func (e *env) example(file string, into kube.Object) {
	e.Helper()
	doc, err := apis.Examples.ReadFile("examples/" + file)
	if err != nil {
		e.Fatal(err)
	}
	first, _, _ := strings.Cut(string(doc), "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(first), into); err != nil {
		e.Fatal(err)
	}
	e.Create(into)
}

// awaitMachine waits until done accepts a Machine.
func (e *env) awaitMachine(name, what string, done func(*v1alpha1.Machine) bool) *v1alpha1.Machine {
	e.Helper()
	m := &v1alpha1.Machine{}
	feed.Until(e.T, name+" "+what, func() (bool, string) {
		m = &v1alpha1.Machine{}
		if err := e.Kube.Get(e.Context(), e.Namespace, name, m); err != nil {
			return false, err.Error()
		}
		state, _ := yaml.Marshal(m.Status)
		return done(m), string(state)
	})
	return m
}

// awaitClaim waits until done accepts a PersistentVolumeClaim.
func (e *env) awaitClaim(name, what string, done func(*corev1.PersistentVolumeClaim) bool) {
	e.Helper()
	feed.Until(e.T, name+" "+what, func() (bool, string) {
		claim := &corev1.PersistentVolumeClaim{}
		err := e.Kube.Get(e.Context(), e.Namespace, name, claim)
		return err == nil && done(claim), fmt.Sprint(claim.Status, err)
	})
}

// awaitEmpty waits until every object of the machines is deleted.
func (e *env) awaitEmpty() {
	e.Helper()
	feed.Until(e.T, "every object is deleted", func() (bool, string) {
		machines, vms, claims := &v1alpha1.MachineList{}, &kubevirtv1.VirtualMachineList{}, &corev1.PersistentVolumeClaimList{}
		for _, list := range []kube.ObjectList{machines, vms, claims} {
			if err := e.Kube.List(e.Context(), e.Namespace, "", list); err != nil {
				return false, err.Error()
			}
		}
		state := fmt.Sprintf("%d machines, %d virtual machines, %d claims", len(machines.Items), len(vms.Items), len(claims.Items))
		for _, m := range machines.Items {
			state += fmt.Sprintf("; %s: %+v", m.Name, m.Status.Conditions)
		}
		return len(machines.Items)+len(vms.Items)+len(claims.Items) == 0, state
	})
}

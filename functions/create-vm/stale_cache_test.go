package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/stand/transport"
)

// TestStaleCache has a Machine become Running although the API server's cache has neither its network nor its StorageClass.
func TestStaleCache(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	s.CreateMachine("m1")
	w := &hypervisortest.Wire{Answer: transport.FromEmptyCache}
	s.DeleteMachine(s.Drive("m1", w, "runs", hypervisortest.IsRunning), w)
}

// providers returns a list of MachineProviders.
func providers(names []string) (list v1alpha1.MachineProviderList) {
	for _, name := range names {
		list.Items = append(list.Items, v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return list
}

// TestDefaultProvider chooses the default MachineProvider from what the API server's cache and etcd have.
func TestDefaultProvider(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason          string
		cached, present []string
		want            string
		lists           int
	}{
		"Cached":    {"the cache has the only one", []string{"a"}, []string{"a"}, "a", 1},
		"New":       {"the cache lacks the one that caused the event", nil, []string{"a"}, "a", 2},
		"Deleted":   {"the cache has one that was deleted", []string{"a", "b"}, []string{"b"}, "b", 2},
		"None":      {"there is none", nil, nil, "NoMachineProvider", 2},
		"Ambiguous": {"nothing says which", []string{"a", "b"}, []string{"a", "b"}, "MachineProviderAmbiguous", 2},
	} {
		var asked []string
		client, err := kube.New(&rest.Config{Host: "server", QPS: -1, Transport: transport.Lists(providers(tc.cached), providers(tc.present), &asked)}, "test", kinds()...)
		if err != nil {
			t.Fatal(err)
		}
		p, err := providerReconciler{kube: client}.choose(t.Context(), &v1alpha1.Machine{})
		got := ""
		if problem, refused := reconcile.AsUserError(err); refused {
			got = problem.Reason
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			got = p.Name
		}
		if got != tc.want || len(asked) != tc.lists {
			t.Errorf("%s: %s: got %s with %d lists, want %s with %d", name, tc.reason, got, len(asked), tc.want, tc.lists)
		}
	}
}

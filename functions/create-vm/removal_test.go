package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/transport"
)

// TestLateCreation deletes a machine while the request that creates its virtual machine is still being
// sent. Another process removes the machine before the request arrives.
func TestLateCreation(t *testing.T) {
	t.Parallel()
	r := newEnv(t, proxmoxSite)
	// The machine has no CD, because a missing CD would stop the creation of the virtual machine.
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider},
	}}
	r.Create(m)
	armed := true
	through := func(next http.RoundTripper) http.RoundTripper {
		return transport.Func(func(req *http.Request) (*http.Response, error) {
			if armed && req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/qemu") {
				armed = false
				r.DeleteMachine(m, &hypervisortest.Wire{})
			}
			return next.RoundTrip(req)
		})
	}
	config := rest.CopyConfig(r.Config)
	client, err := kube.New(config, hypervisor.FunctionName, kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	slow := newFunction(client, testConnector(client, r.Namespace, through), time.Now)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for armed && ctx.Err() == nil {
		_ = deliver(ctx, slow, hypervisortest.ResyncEvent(r.Namespace, "m1"))
	}
	if armed {
		t.Fatal("no virtual machine was created")
	}
	// A remaining task would have ended by now.
	for range 20 {
		if left := r.Site.Left(m); len(left) > 0 {
			t.Fatalf("a deleted machine has left: %v", left)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

func TestFindingOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   backend.Health
	}{
		"Answer":      {"the call has succeeded", nil, backend.Healthy},
		"Timeout":     {"the hypervisor hangs", &url.Error{Op: "Get", URL: "https://pve", Err: timeoutError{}}, backend.Unreachable},
		"Refused":     {"nothing listens", &url.Error{Op: "Get", URL: "https://pve", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, backend.Unreachable},
		"Name":        {"the host name is not found", &url.Error{Op: "Get", URL: "https://pve", Err: &net.DNSError{}}, backend.Unreachable},
		"Closed":      {"the connection breaks", fmt.Errorf("read: %w", io.EOF), backend.Unreachable},
		"Credentials": {"the hypervisor refuses the token", reconcile.UserError{Reason: "CredentialsInvalid"}, backend.Unhealthy},
		"Certificate": {"another server may answer", reconcile.UserError{Reason: "EndpointUntrusted"}, backend.Unhealthy},
		"Missing":     {"KubeVirt is not installed", hypervisor.NotInstalledError{UserError: reconcile.UserError{Reason: "KubeVirtNotInstalled"}}, backend.Unhealthy},
		"Mistake":     {"a requester names an image that does not exist", reconcile.UserError{Reason: "ImageNotFound"}, ""},
		"Task":        {"a task of one machine fails", hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "ProxmoxApiError"}}, ""},
		"Conflict":    {"another delivery was faster", apierrors.NewConflict(schema.GroupResource{}, "m1", nil), ""},
		"Canceled":    {"the Broker has ended the delivery", &url.Error{Op: "Get", URL: "https://pve", Err: errors.New("context canceled")}, ""},
		"Waiting":     {"the machine waits for something else", reconcile.WaitError{Reason: "WaitingForAddress"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := findingOf(time.Now(), time.Now(), tc.err)
			if got.Health != tc.want || ok != (tc.want != "") {
				t.Errorf("%s: got %q, want %q", tc.reason, got.Health, tc.want)
			}
		})
	}
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// published returns the published report of the hypervisor. It is empty if there is none.
func (e *env) published() (r backend.Report) {
	e.Helper()
	c := &corev1.ConfigMap{}
	if err := e.Kube.Get(e.Context(), e.Namespace, backend.ConfigMapBackends, c); err != nil {
		e.Fatal(err)
	}
	if text := c.Data[backend.ReportKey(string(e.providerNow().Spec.Type), e.Site.Provider)]; text != "" {
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			e.Fatal(err)
		}
	}
	return r
}

// TestHealthIsMeasured has Proxmox VE hang while a Machine is reconciled. The delivery publishes that and writes it into the
// status of the MachineProvider, and a delivery after the recovery does the same.
func TestHealthIsMeasured(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	r, _ := newPVE(t, proxmoxsim.Options{Plan: plan}, func(p *v1alpha1.MachineProvider) { p.Spec.Endpoint.TimeoutSeconds = 1 })
	r.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: backend.ConfigMapBackends}})
	process := func() *function {
		f := r.process(&hypervisortest.Wire{})
		f.providers.reporter = backendhealth.New(f.kube, r.Namespace)
		return f
	}
	if err := deliver(t.Context(), process(), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
		t.Fatal(err)
	}
	if got := r.published(); got.Health != backend.Healthy || got.LastSeen.IsZero() {
		t.Errorf("resync has asked it: %+v", got)
	}
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	for _, tc := range []struct {
		reason string
		rule   faults.Rule
		want   backend.Health
		phase  v1alpha1.ProviderPhase
	}{
		{"it hangs", faults.Rule{Latency: "3s"}, backend.Unreachable, v1alpha1.ProviderOffline},
		{"it answers again", faults.Rule{}, backend.Healthy, v1alpha1.ProviderReady},
		{"one request is refused, which says nothing about it", faults.Rule{Operation: "GET /nodes/*/qemu/*/pending", Error: "500 no"}, backend.Healthy, v1alpha1.ProviderReady},
	} {
		if err := plan.Set(tc.rule); err != nil {
			t.Fatal(err)
		}
		_ = deliver(t.Context(), process(), hypervisortest.ResyncEvent(m.Namespace, m.Name))
		if got, p := r.published(), r.providerNow(); got.Health != tc.want || p.Status.Phase != tc.phase {
			t.Errorf("%s: published %+v, MachineProvider is %s", tc.reason, got, p.Status.Phase)
		}
		r.Clock.Advance(10 * time.Minute) // the Machine backs off
	}
	if err := plan.Set(); err != nil {
		t.Fatal(err)
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
	p := r.providerNow()
	if err := r.Kube.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t.Context(), process(), lookAtProvider(p.Name, events.TypeResync)); err != nil {
		t.Fatal(err)
	}
	c := &corev1.ConfigMap{}
	if err := r.Kube.Get(t.Context(), r.Namespace, backend.ConfigMapBackends, c); err != nil || len(c.Data) > 0 {
		t.Errorf("the MachineProvider is gone: %v, %v", c.Data, err)
	}
	if err := r.Kube.Get(t.Context(), "", p.Name, p); !kube.NotFound(err) {
		t.Errorf("the MachineProvider stays: %v", err)
	}
}

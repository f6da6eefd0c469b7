package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// TestAllowedNamespaces names providers that are reserved for other namespaces.
func TestAllowedNamespaces(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	namespace := server.Namespace(t)
	client, err := kube.New(server.Config(), "test", kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{}
	if err := client.Get(t.Context(), "", namespace, ns); err != nil {
		t.Fatal(err)
	}
	if err := client.Merge(t.Context(), ns, map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": namespace}}}); err != nil {
		t.Fatal(err)
	}
	choose := func(ref *v1alpha1.ProviderReference, items ...v1alpha1.MachineProvider) (*v1alpha1.MachineProvider, error) {
		return plan.ChooseProvider(ref, namespace, items, client.LabelsOf(t.Context(), namespace))
	}
	for name, tc := range map[string]struct {
		reason  string
		allowed *v1alpha1.AllowedNamespaces
		refused bool
	}{
		"Absent":          {"no restriction allows every namespace", nil, false},
		"Listed":          {"the namespace is listed by name", &v1alpha1.AllowedNamespaces{List: []string{"other", namespace}}, false},
		"Labelled":        {"the namespace has the labels", &v1alpha1.AllowedNamespaces{List: []string{"other"}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": namespace}}}, false},
		"Other":           {"other namespaces are listed", &v1alpha1.AllowedNamespaces{List: []string{"other"}}, true},
		"Label":           {"the namespace has other labels", &v1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}}}, true},
		"EmptyList":       {"an empty list allows no namespace", &v1alpha1.AllowedNamespaces{}, true},
		"EmptySelector":   {"an empty selector allows every namespace", &v1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{}}, false},
		"InvalidSelector": {"an invalid selector allows no namespace", &v1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}}}}, true},
	} {
		p := v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "pve"}, Spec: v1alpha1.MachineProviderSpec{AllowedNamespaces: tc.allowed}}
		open := v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "open"}}
		_, err := choose(&v1alpha1.ProviderReference{Name: "pve"}, p)
		if flt, _ := asUserError(err); (flt.Reason == "MachineProviderNotAllowed") != tc.refused || (err != nil) != tc.refused {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
		}
		_, alone := choose(nil, p)
		if (alone != nil) != tc.refused {
			t.Errorf("%s: as the only provider: %v", name, alone)
		}
		chosen, err := choose(nil, p, open)
		if tc.refused && (err != nil || chosen.Name != "open") {
			t.Errorf("%s: beside one that is for every namespace: %v, %v", name, chosen, err)
		}
	}
}

// TestStableMessage checks that the message of an error is the same at each attempt, because a varying
// message causes a status write each time.
func TestStableMessage(t *testing.T) {
	t.Parallel()
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 54321}
	cases := map[string]struct {
		err  error
		want string
	}{
		"Refused":   {&net.OpError{Op: "dial", Net: "tcp", Addr: from, Err: syscall.ECONNREFUSED}, "dial: connection refused"},
		"Reset":     {fmt.Errorf("list nodes: %w", &net.OpError{Op: "read", Source: from, Err: syscall.ECONNRESET}), "read: connection reset by peer"},
		"Timeout":   {fmt.Errorf("list nodes: %w", context.DeadlineExceeded), "the request timed out"},
		"Authority": {fmt.Errorf("list: %w", x509.UnknownAuthorityError{}), "its certificate is signed by an authority that is not trusted: write that into spec.endpoint.caBundle"},
		"Other":     {fmt.Errorf("list nodes: %w", errors.New("odd answer")), "odd answer"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := stableMessage(tc.err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func lookAtProvider(name, kind string) event.Event {
	e := event.New()
	e.SetID("1")
	e.SetSource("/test")
	e.SetType(kind)
	events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MachineProvider", Name: name}.Set(&e, "")
	return e
}

func (e *env) providerNow() *v1alpha1.MachineProvider {
	e.Helper()
	p := &v1alpha1.MachineProvider{}
	if err := e.Kube.Get(e.Context(), "", e.Site.Provider, p); err != nil {
		e.Fatal(err)
	}
	return p
}

func TestProviderStatus(t *testing.T) {
	t.Parallel()
	remote := apiserver.StartAnother(t).Config()
	r := newEnv(t, remoteSite(remote))
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	w := &hypervisortest.Wire{}
	f := r.process(w)
	for range 2 {
		if err := deliver(t.Context(), f, lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
	}
	p := r.providerNow()
	s := p.Status
	if s.Phase != v1alpha1.ProviderReady || s.Version == "" || s.MachineCount != 1 || len(s.Nodes) < 3 || !meta.IsStatusConditionTrue(s.Conditions, "Ready") {
		t.Errorf("got %+v", s)
	}
	if s.Capacity == nil || s.Capacity.CPU.Sign() <= 0 || s.Capacity.MemoryAvailable.Cmp(s.Capacity.Memory) >= 0 {
		t.Errorf("capacity %+v, want less memory available than there is, because a machine runs", s.Capacity)
	}
	if s.Nodes[0].CPUUsed != nil || s.Nodes[0].MemoryUsed != nil {
		t.Errorf("no metrics server runs, but the usage is %+v", s.Nodes[0])
	}
	node := s.Nodes[0].Name
	r.measure(remote, node, "7250m", "96Gi")
	if err := deliver(t.Context(), f, lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
		t.Fatal(err)
	}
	if n := r.providerNow().Status.Nodes[0]; n.CPUUsed == nil || n.CPUUsed.String() != "7250m" || n.MemoryUsed == nil || n.MemoryUsed.String() != "96Gi" {
		t.Errorf("%+v differs from what was measured", n)
	}
	requests := len(w.Order)
	if err := deliver(t.Context(), f, lookAtProvider(r.Site.Provider, events.TypeRefUpdate)); err != nil {
		t.Fatal(err)
	}
	if len(w.Order) != requests {
		t.Errorf("the provider's own status write caused requests: %v", w.Order[requests:])
	}
	r.breakProvider(f, w)
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// measure sets the usage of a node, as metrics-server reports it.
func (e *env) measure(cluster *rest.Config, node, cpu, memory string) {
	e.Helper()
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		e.Fatal(err)
	}
	definition := map[string]any{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: nodes.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, stands in for the aggregated API"}
spec:
  group: metrics.k8s.io
  scope: Cluster
  names: {plural: nodes, singular: node, kind: NodeMetrics, listKind: NodeMetricsList}
  versions:
    - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`), &definition); err != nil {
		e.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(e.Context(), &unstructured.Unstructured{Object: definition}, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	measured := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": map[string]any{"name": node},
		"timestamp": "2026-01-02T03:04:05Z", "window": "10s", "usage": map[string]any{"cpu": cpu, "memory": memory},
	}}
	for {
		_, err = client.Resource(schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "nodes"}).Create(e.Context(), measured, metav1.CreateOptions{})
		if !kube.NotFound(err) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		e.Fatal(err)
	}
}

// TestKeepSmallChanges checks that the usage of a host is written only if it has changed by a
// twentieth of the host.
func TestKeepSmallChanges(t *testing.T) {
	t.Parallel()
	host := func(name, cpu, memory string) v1alpha1.ProviderNode {
		n := v1alpha1.ProviderNode{Name: name, CPU: resource.MustParse("32"), Memory: resource.MustParse("128Gi")}
		if cpu != "" {
			n.CPUUsed, n.MemoryUsed = new(resource.MustParse(cpu)), new(resource.MustParse(memory))
		}
		return n
	}
	cases := map[string]struct {
		reason            string
		before, now, want v1alpha1.ProviderNode
	}{
		"SmallChange": {reason: "a small change is not written", before: host("a", "8", "64Gi"), now: host("a", "9500m", "58Gi"), want: host("a", "8", "64Gi")},
		"OneOfTwo":    {reason: "CPU and memory are compared separately", before: host("a", "8", "64Gi"), now: host("a", "10", "65Gi"), want: host("a", "10", "64Gi")},
		"Decrease":    {reason: "a decrease is written as well", before: host("a", "8", "64Gi"), now: host("a", "8", "32Gi"), want: host("a", "8", "32Gi")},
		"First":       {reason: "a first measurement is written", before: host("a", "", ""), now: host("a", "1m", "1Mi"), want: host("a", "1m", "1Mi")},
		"Last":        {reason: "a value without a measurement is removed", before: host("a", "8", "64Gi"), now: host("a", "", ""), want: host("a", "", "")},
		"Another":     {reason: "the usage of another host is not compared", before: host("b", "8", "64Gi"), now: host("a", "8100m", "64Gi"), want: host("a", "8100m", "64Gi")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := []v1alpha1.ProviderNode{tc.now}
			keepSmallChanges([]v1alpha1.ProviderNode{tc.before}, now)
			if !equality.Semantic.DeepEqual(now[0], tc.want) {
				t.Errorf("%s: got %+v, want %+v", tc.reason, now[0], tc.want)
			}
		})
	}
}

// breakProvider stops the hypervisor from answering, and lets it recover.
func (e *env) breakProvider(f *function, w *hypervisortest.Wire) {
	e.Helper()
	spec := func(change func(*v1alpha1.MachineProviderSpec)) *v1alpha1.MachineProvider {
		hypervisortest.Change(e.Env, e.providerNow(), func(p *v1alpha1.MachineProvider) { change(&p.Spec) })
		for range 2 {
			_ = deliver(e.Context(), f, lookAtProvider(e.Site.Provider, events.TypeResync))
		}
		return e.providerNow()
	}
	p := spec(func(s *v1alpha1.MachineProviderSpec) {
		s.Endpoint = &v1alpha1.ProviderEndpoint{URL: "https://127.0.0.1:1"}
	})
	c := meta.FindStatusCondition(p.Status.Conditions, "Ready")
	if p.Status.Phase != v1alpha1.ProviderOffline || c.Reason != "Unreachable" || !strings.HasSuffix(c.Message, "connection refused") {
		e.Errorf("phase %s, condition %+v", p.Status.Phase, c)
	}
	p = spec(func(s *v1alpha1.MachineProviderSpec) { s.Endpoint, s.CredentialsRef.Name = nil, "missing" })
	c = meta.FindStatusCondition(p.Status.Conditions, "Ready")
	if p.Status.Phase != v1alpha1.ProviderFailed || c.Reason != "CredentialsMissing" || !strings.Contains(c.Message, "create it with the kubeconfig of the KubeVirt cluster under the key kubeconfig") {
		e.Errorf("phase %s, condition %+v", p.Status.Phase, c)
	}
	p = spec(func(s *v1alpha1.MachineProviderSpec) { s.CredentialsRef.Name = "remote" })
	if p.Status.Phase != v1alpha1.ProviderReady {
		e.Errorf("phase %s after the recovery", p.Status.Phase)
	}
	if writes := w.Count["PATCH /apis/vitistack.io/v1alpha1/machineproviders/remote-*/status"]; writes != 5 {
		e.Errorf("%d writes for five changes: %v", writes, w.Count)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newEnv(t, kubevirtSite)
	r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: "kubevirt"},
		Networks: []v1alpha1.MachineNetwork{{Name: "eth0", NetworkName: "nowhere"}},
	}})
	r.Drive("m1", &hypervisortest.Wire{}, "lacks its network", hypervisortest.HasReason("NetworkConfigurationNotFound"))
	r.CreateMachine("m2")
	r.Drive("m2", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), lookAtProvider("kubevirt", events.TypeResync)); err != nil {
		t.Fatal(err)
	}
	setMachineGauges([]v1alpha1.Machine{{Spec: v1alpha1.MachineSpec{Template: "large"}, Status: v1alpha1.MachineStatus{Phase: v1alpha1.MachineStopped, Provider: "pve", VMName: "x"}}},
		[]v1alpha1.MachineProvider{{ObjectMeta: metav1.ObjectMeta{Name: "pve"}, Spec: v1alpha1.MachineProviderSpec{Type: v1alpha1.ProviderProxmox}}})
	countReconcile(metricsPrefix(&v1alpha1.Machine{}, v1alpha1.ProviderProxmox), reconcile.UserError{Reason: "InsufficientResources", Message: ""}, time.Second)
	var b bytes.Buffer
	metrics.WritePrometheus(&b, false)
	lines := strings.Split(b.String(), "\n")
	for _, want := range []string{
		`kubevirt_operator_machines_total{phase="Pending",template="small"}`,
		`kubevirt_operator_machines_total{phase="Running",template="small"}`,
		`kubevirt_operator_virtual_machines_total{status="Running"}`,
		`kubevirt_operator_reconciliation_duration_seconds_count{controller="Machine"}`,
		`kubevirt_operator_reconciliation_errors_total{controller="Machine",error_type="NetworkConfigurationNotFound"}`,
		`kubevirt_operator_network_configuration_errors_total{network_name="nowhere"}`,
		`kubevirt_operator_storage_provisioning_duration_seconds_count{storage_class="standard"}`,
		`proxmox_operator_machines_total{phase="Stopped",template="large"}`,
		`proxmox_operator_virtual_machines_total{status="Stopped"}`,
		`proxmox_operator_reconciliation_errors_total{controller="Machine",error_type="InsufficientResources"}`,
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want+" ") }) {
			t.Errorf("there is no metric %s", want)
		}
	}
}

// TestCountByPhase counts the machines of each kind of hypervisor, and has a series for a kind whose machines are all deleted.
func TestCountByPhase(t *testing.T) {
	t.Parallel()
	provider := v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "pve"}, Spec: v1alpha1.MachineProviderSpec{Type: v1alpha1.ProviderProxmox}}
	m := v1alpha1.Machine{Spec: v1alpha1.MachineSpec{Template: "large"}, Status: v1alpha1.MachineStatus{Phase: v1alpha1.MachineRunning, Provider: "pve", VMName: "x"}}
	for n, machines := range [][]v1alpha1.Machine{{}, {m}, {m, m}} {
		got := countByPhase(machines, []v1alpha1.MachineProvider{provider})
		for _, name := range []string{`proxmox_operator_virtual_machines_total{status="Running"}`, `proxmox_operator_machines_total{phase="Running",template="large"}`} {
			if value, there := got[name]; !there || value != float64(n) {
				t.Errorf("%d machines: %s is %v, %t", n, name, value, there)
			}
		}
	}
}

func TestReportIgnoredVariables(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	reportIgnoredVariables(slog.New(slog.NewTextHandler(&out, nil)), func(name string) string {
		return map[string]string{"LEADER_ELECTION": "true", "RECONCILE_INTERVAL": "30s", "KUBECONFIG": "x"}[name]
	})
	if said := out.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "LEADER_ELECTION") || !strings.Contains(said, "PingSource") {
		t.Errorf("said %s", said)
	}
}

package main

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// pool creates a NetworkPool for the namespace of this test, and deletes it at the end.
func (w *env) pool(name string, spec v1alpha1.NetworkPoolSpec) *v1alpha1.NetworkPool {
	w.t.Helper()
	if spec.AllowedNamespaces == nil {
		spec.AllowedNamespaces = &v1alpha1.AllowedNamespaces{List: []string{w.namespace}}
	}
	p := &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + name}, Spec: spec}
	w.must(w.kube.Create(w.t.Context(), p))
	w.t.Cleanup(func() { _ = w.kube.Delete(context.Background(), p) })
	return p
}

// poolOfNothing creates a NetworkPool that allows nothing, so that pools bind the namespace of this
// test. The namespaces of other tests remain unbound, because an event of a NetworkPool concerns
// their networks too.
func (w *env) poolOfNothing() {
	w.t.Helper()
	w.pool("nothing", v1alpha1.NetworkPoolSpec{Providers: []string{"none"}})
}

// changePool edits a NetworkPool and delivers the event of that change.
func (w *env) changePool(p *v1alpha1.NetworkPool, how func(*v1alpha1.NetworkPoolSpec)) {
	w.t.Helper()
	before := p.DeepCopy()
	how(&p.Spec)
	_, err := w.kube.Patch(w.t.Context(), before, p)
	w.must(err)
	w.poolEvent(p.Name)
}

func (w *env) poolEvent(name string) {
	w.t.Helper()
	w.must(w.deliver(kindPool, name, events.TypeRefUpdate))
}

// TestNotInPool has tenants request segments that no pool of theirs allows.
func TestNotInPool(t *testing.T) {
	t.Parallel()
	given := v1alpha1.NetworkPoolSpec{Providers: []string{"manual", "corp"}, VLANs: []v1alpha1.VLANRange{"100-199"}, Prefixes: []string{"10.20.0.0/16"}}
	of := func(vlan int32, prefix string) provider.Interface {
		return always{segment.Segment{IPv4: netip.MustParsePrefix(prefix), VLAN: vlan}}
	}
	for name, tc := range map[string]struct {
		reason string
		spec   v1alpha2.NetworkNamespaceSpec
		source provider.Interface
		says   string
	}{
		"VLAN":           {"the VLAN is another tenant's", manualSpec("10.20.1.0/24", "", 4000), nil, "VLAN 4000 and 10.20.1.0/24 from provider manual"},
		"Untagged":       {"the network without a VLAN belongs to the platform team", manualSpec("10.20.1.0/24", "", 0), nil, "VLAN 0 and"},
		"Prefix":         {"the prefix is another tenant's", manualSpec("192.168.5.0/24", "", 150), nil, "192.168.5.0/24"},
		"Provider":       {"the provider is not allowed in this namespace", asks("netbox"), always{}, "a segment from provider netbox"},
		"Default":        {"the default provider nam is not allowed in this namespace", v1alpha2.NetworkNamespaceSpec{}, always{}, "a segment from provider nam"},
		"Inferred":       {"the inferred provider manual names a VLAN of another tenant", v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: "static", Static: &v1alpha2.StaticPool{IPv4CIDR: "10.20.1.0/24", IPv4Gateway: "10.20.1.1", VLANID: 7}}}, nil, "VLAN 7 and"},
		"AnsweredVLAN":   {"the source answers with a VLAN of another tenant", asks("corp"), of(7, "10.20.1.0/24"), "VLAN 7 and 10.20.1.0/24 from provider corp"},
		"AnsweredPrefix": {"the source answers with a prefix of another tenant", asks("corp"), of(150, "172.16.0.0/24"), "172.16.0.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sources := map[string]provider.Interface{}
			provider, _ := plan.ProviderOf(tc.spec)
			if tc.source != nil {
				sources[provider] = tc.source
			}
			w := newEnv(t, sources)
			w.f.optionalPools = false
			w.pool("lab", given)
			w.network("net", tc.spec)
			nn := w.reconcile("net")
			message := w.expect(nn, "Error", plan.ReasonNotInPool)
			for _, part := range []string{tc.says, "-lab: providers manual, corp; VLANs 100-199; prefixes 10.20.0.0/16", "ask the platform team"} {
				if !strings.Contains(message, part) {
					t.Errorf("%s: message %q, want %q in it", tc.reason, message, part)
				}
			}
			if nn.Status.IPv4Prefix != "" || nn.Status.VLANID != 0 || nn.Status.NextCheckTime == nil {
				t.Errorf("%s: status %+v, want no segment, and a next check", tc.reason, nn.Status)
			}
			w.delete(w.get("net"))
			if w.reconcile("net") != nil {
				t.Errorf("%s: a rejected network cannot be deleted", tc.reason)
			}
		})
	}
}

// TestSourceIsNotAsked has a tenant name a provider that no pool of theirs allows. The provider
// receives no request, neither for a segment nor for its release.
func TestSourceIsNotAsked(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.f.optionalPools = false
	w.network("net", asks("corp-ipam"))
	nn := w.reconcile("net")
	if message := w.expect(nn, "Error", plan.ReasonNotInPool); !strings.Contains(message, "no NetworkPool allows namespace "+w.namespace) {
		t.Errorf("message %q", message)
	}
	if asked := nn.Annotations[v1alpha1.AnnotationProvider]; asked != "" {
		t.Errorf("the provider is recorded as asked: %s", asked)
	}
	if err := w.deliverAnswer(events.TypeNetworkProvisioned, events.NetworkProvisioned{UID: string(nn.UID), Provider: "corp-ipam", ID: "seg-1", IPv4Prefix: "10.20.1.0/24"}); !events.IsPermanent(err) {
		t.Errorf("an answer without a request: %v", err)
	}
	w.expect(w.get("net"), "Error", plan.ReasonNotInPool)
	w.delete(w.get("net"))
	if w.reconcile("net") != nil {
		t.Error("the network must be deleted")
	}
	if sent := w.sentTypes(); len(sent) > 0 {
		t.Errorf("sent %v to an IPAM that this namespace may not use", sent)
	}
}

// TestPoolChanges has the platform team allow and disallow what networks use.
func TestPoolChanges(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.poolOfNothing()
	w.network("net", manualSpec("10.20.1.0/24", "10.20.1.1", 150))
	w.expect(w.reconcile("net"), "Error", plan.ReasonNotInPool)
	if next := w.get("net").Status.NextCheckTime; next == nil || !next.After(w.clock.Now()) {
		t.Fatalf("next check at %v", next)
	}
	w.expect(w.reconcile("net"), "Error", plan.ReasonNotInPool)

	p := w.pool("lab", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"150"}})
	w.poolEvent(p.Name)
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	version := w.get("net").ResourceVersion
	w.poolEvent(p.Name)
	if got := w.get("net"); got.ResourceVersion != version {
		t.Errorf("a network in its pool is written to: %+v", got.Status)
	}

	w.changePool(p, func(s *v1alpha1.NetworkPoolSpec) { s.VLANs = []v1alpha1.VLANRange{"151"} })
	nn := w.get("net")
	if message := w.expect(nn, "Ready", plan.ReasonNotInPool); !strings.Contains(message, "keeps its segment") || nn.Status.IPv4Prefix != "10.20.1.0/24" || nn.Status.VLANID != 150 {
		t.Errorf("message %q, status %+v: the segment in use is kept, and the network reports the pool", message, nn.Status)
	}
	w.clock.Pass(2 * provider.MaxDelay)
	w.expect(w.reconcile("net"), "Ready", plan.ReasonNotInPool)
	w.changePool(p, func(s *v1alpha1.NetworkPoolSpec) { s.VLANs = nil })
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)

	w.must(w.kube.Delete(t.Context(), p))
	w.must(w.deliver(kindPool, p.Name, events.TypeRefDelete))
	w.expect(w.get("net"), "Ready", plan.ReasonNotInPool)
	w.delete(w.get("net"))
	if w.reconcile("net") != nil {
		t.Error("the network must be deleted")
	}
}

// TestPoolIsMissedByResync deletes a pool while its event is lost.
func TestPoolIsMissedByResync(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.f.optionalPools = false
	ns := &corev1.Namespace{}
	w.must(w.kube.Get(t.Context(), "", w.namespace, ns))
	p := w.pool("lab", v1alpha1.NetworkPoolSpec{AllowedNamespaces: &v1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"network": w.namespace}}}})
	w.network("net", manualSpec("10.20.1.0/24", "10.20.1.1", 150))
	w.expect(w.reconcile("net"), "Error", plan.ReasonNotInPool)
	w.must(w.kube.Merge(t.Context(), ns, map[string]any{"metadata": map[string]any{"labels": map[string]any{"network": w.namespace}}}))
	w.clock.Pass(2 * provider.MaxDelay)
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	w.must(w.kube.Delete(t.Context(), p))
	w.must(w.deliver(kindNetwork, "net", events.TypeResync))
	w.expect(w.get("net"), "Ready", plan.ReasonNotInPool)
}

// beforeStatus calls a function before the first write of a status.
type beforeStatus struct {
	http.RoundTripper
	done atomic.Bool
	do   func()
}

func (b *beforeStatus) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/status") && b.done.CompareAndSwap(false, true) {
		b.do()
	}
	return b.RoundTripper.RoundTrip(req)
}

// TestPoolAppearsMeanwhile creates a pool, and handles its event, between the decision about a network
// and its write.
func TestPoolAppearsMeanwhile(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.poolOfNothing()
	w.network("net", manualSpec("10.20.1.0/24", "10.20.1.1", 150))
	config := rest.CopyConfig(w.config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return &beforeStatus{RoundTripper: rt, do: func() { w.poolEvent(w.pool("lab", v1alpha1.NetworkPoolSpec{}).Name) }}
	})
	w.f.kube = w.client(config)
	w.expect(w.reconcile("net"), "Error", plan.ReasonNotInPool)
	if next := w.get("net").Status.NextCheckTime; next != nil {
		t.Errorf("the network waits until %s for a pool that exists", next)
	}
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
}

func TestDecidePoolChange(t *testing.T) {
	t.Parallel()
	network := func(phase v1alpha2.ProvisioningPhase, status metav1.ConditionStatus, reason string) *v1alpha2.NetworkNamespace {
		nn := someNetwork("net", manualSpec("10.5.0.0/24", "", 1))
		nn.Status.ProvisioningPhase = phase
		nn.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason}}
		return nn
	}
	fresh, going := someNetwork("net", manualSpec("10.5.0.0/24", "", 1)), network("Ready", "True", reasonProvisioned)
	going.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		reason  string
		network *v1alpha2.NetworkNamespace
		allowed bool
		want    poolChange
	}{
		"Admitted":        {"it waits for a pool, and a pool allows it now", network("Error", "False", plan.ReasonNotInPool), true, poolAdmits},
		"Returned":        {"no pool allowed it, and one does again", network("Ready", "False", plan.ReasonNotInPool), true, poolAdmits},
		"Waits":           {"no pool allows it yet", network("Error", "False", plan.ReasonNotInPool), false, poolUnchanged},
		"AlreadyReported": {"it already reports that no pool allows it", network("Ready", "False", plan.ReasonNotInPool), false, poolUnchanged},
		"NoLongerAllowed": {"no pool allows it any more", network("Ready", "True", reasonProvisioned), false, poolExcludes},
		"Ready":           {"its pool still allows it", network("Ready", "True", reasonProvisioned), true, poolUnchanged},
		"Otherwise":       {"it waits for something else", network("Error", "False", plan.ReasonOverlap), true, poolUnchanged},
		"Pending":         {"its own deliveries check pools", network("Pending", "False", provider.ReasonWorking), false, poolUnchanged},
		"New":             {"its first delivery checks pools", fresh, false, poolUnchanged},
		"Deleting":        {"it is being deleted", going, false, poolUnchanged},
	} {
		if got := decidePoolChange(tc.network, tc.allowed); got != tc.want {
			t.Errorf("%s: %s: got %d, want %d", name, tc.reason, got, tc.want)
		}
	}
}

// TestVLANOfOthers has a tenant choose another prefix in the VLAN of another namespace.
func TestVLANOfOthers(t *testing.T) {
	t.Parallel()
	victim, w := newEnv(t, nil), newEnv(t, nil)
	victim.f.datacenters, w.f.datacenters = nil, nil
	victim.network("net", manualSpec("10.203.8.0/24", "", 2208))
	victim.expect(victim.reconcile("net"), "Ready", reasonProvisioned)

	p := w.pool("lab", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"2200-2299"}})
	w.network("net", manualSpec("10.203.9.0/24", "", 2208))
	nn := w.reconcile("net")
	if message := w.expect(nn, "Error", plan.ReasonOverlap); !strings.Contains(message, "VLAN 2208 is that of NetworkNamespace "+victim.namespace+"/net") || nn.Status.VLANID != 0 {
		t.Errorf("message %q, VLAN %d", message, nn.Status.VLANID)
	}
	w.network("second", manualSpec("10.203.10.0/24", "", 2209))
	w.expect(w.reconcile("second"), "Ready", reasonProvisioned)
	w.network("third", manualSpec("10.203.11.0/24", "", 2209))
	if w.expect(w.reconcile("third"), "Ready", reasonProvisioned); t.Failed() {
		t.Error("one namespace may have two networks in a VLAN")
	}
	w.changePool(p, func(s *v1alpha1.NetworkPoolSpec) { s.ShareVLANs = true })
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
}

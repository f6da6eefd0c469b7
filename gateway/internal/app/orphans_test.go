package app

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/tests/stand/browser"
)

// withOrphans returns a MachineProvider at which checks have found VMs without a Machine.
func withOrphans(name string, kind v1alpha1.ProviderType, found ...v1alpha1.Orphan) *v1alpha1.MachineProvider {
	p := &v1alpha1.MachineProvider{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "MachineProvider"}, ObjectMeta: meta("", name)}
	p.Spec.Type, p.Status.Phase, p.Status.Orphans = kind, v1alpha1.ProviderReady, found
	p.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Healthy", LastTransitionTime: metav1.Now()}}
	if len(found) > 0 {
		p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionOrphansFound, Status: "True", Reason: "OrphansFound", Message: "remove " + found[0].ID + ": qm destroy", LastTransitionTime: metav1.Now(),
		})
	}
	return p
}

// reported is the ConfigMap orphans with what was found in Leases.
func reported(t *testing.T, found ...v1alpha1.Orphan) *corev1.ConfigMap {
	t.Helper()
	text, err := json.Marshal(v1alpha1.OrphanReport{Orphans: found, Message: "remove the Lease: kubectl delete lease"})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta(platformNamespace(), v1alpha1.ConfigMapOrphans),
		Data: map[string]string{v1alpha1.OrphansInLeases: string(text), v1alpha1.OrphansInKea: "{"},
	}
}

// TestOrphans shows what functions have found, as a metric and over REST, until it is gone.
func TestOrphans(t *testing.T) {
	t.Parallel()
	s := start(t, "--handlers.metrics.updateInterval=0s")
	counts := func(want map[string]float64) func() bool {
		return func() bool {
			f := families(t, s)["vitistack_orphans"]
			for _, backend := range inventory.OrphanBackends {
				if n, there := value(f, "backend", backend); !there || n != want[backend] {
					return false
				}
			}
			return len(f.GetMetric()) == 5
		}
	}
	if !counts(nil)() {
		t.Fatalf("each backend has to be there at 0 from the start: %v", families(t, s)["vitistack_orphans"])
	}
	first := metav1.NewTime(time.Now().Add(-time.Hour))
	confirmed := func(id string) v1alpha1.Orphan {
		return v1alpha1.Orphan{ID: id, UID: "uid-" + id, FirstSeen: first, Confirmed: true}
	}
	suspect := v1alpha1.Orphan{ID: "30", UID: "3", FirstSeen: first}
	s.api.Put(t, "machineproviders", withOrphans("pve-a", v1alpha1.ProviderProxmox, confirmed("10"), confirmed("20"), suspect))
	s.api.Put(t, "machineproviders", withOrphans("pve-b", v1alpha1.ProviderProxmox, confirmed("10")))
	s.api.Put(t, "machineproviders", withOrphans("kv", v1alpha1.ProviderKubeVirt, suspect))
	s.api.Put(t, "configmaps", reported(t, confirmed("net-10-0-0-5")))
	eventually(t, "two orphans at the Proxmox VE of both providers, and one Lease", counts(map[string]float64{"proxmox": 2, "leases": 1}))
	var list struct {
		Providers []struct {
			Name    string
			Orphans []string
		}
	}
	if err := json.Unmarshal(s.get("/api/v1/providers").body, &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Providers {
		if want := map[string]string{"pve-a": "10,20", "pve-b": "10"}[p.Name]; strings.Join(p.Orphans, ",") != want {
			t.Errorf("provider %s has the orphans %v, want %s", p.Name, p.Orphans, want)
		}
	}
	var operators struct {
		Operators []struct {
			Operator  string
			Resources struct{ Orphans int }
		}
	}
	if err := json.Unmarshal(s.get("/api/v1/operators").body, &operators); err != nil {
		t.Fatal(err)
	}
	for _, o := range operators.Operators {
		if want := map[string]int{"proxmox": 2}[o.Operator]; o.Resources.Orphans != want {
			t.Errorf("operator %s has %d orphans, want %d", o.Operator, o.Resources.Orphans, want)
		}
	}
	s.api.Put(t, "machineproviders", withOrphans("pve-a", v1alpha1.ProviderProxmox))
	s.api.Put(t, "machineproviders", withOrphans("pve-b", v1alpha1.ProviderProxmox))
	s.api.Put(t, "configmaps", reported(t))
	eventually(t, "none is left", counts(nil))
}

// TestPageOrphans shows orphans among what needs attention, with what to do.
func TestPageOrphans(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := browser.New(t, s.url, 1200, 800)
	b.Open("#/overview")
	b.Wait("a page without problems", `document.querySelector("main .headline.good")`)
	orphan := v1alpha1.Orphan{ID: "10001", UID: "1", FirstSeen: metav1.NewTime(time.Now().Add(-time.Hour)), Confirmed: true}
	s.api.Put(t, "machineproviders", withOrphans("pve", v1alpha1.ProviderProxmox, orphan))
	b.Wait("the provider", `document.querySelector(".attention")?.textContent.includes("remove 10001: qm destroy")`)
	if text := b.Text(".attention"); !strings.Contains(text, "platform team") || !strings.Contains(text, "Check that the objects") {
		t.Errorf("the entry has to say who acts, and how: %s", text)
	}
	if href := browser.Eval[string](b, `document.querySelector(".attention a").getAttribute("href")`); !strings.HasPrefix(href, "#/providers/pve") {
		t.Errorf("the entry leads to %s", href)
	}
	b.Accessible("orphans")
	s.api.Put(t, "configmaps", reported(t, orphan))
	b.Wait("the Lease", `document.querySelector(".attention")?.textContent.includes("kubectl delete lease")`)
	s.api.Put(t, "machineproviders", withOrphans("pve", v1alpha1.ProviderProxmox))
	s.api.Put(t, "configmaps", reported(t))
	b.Wait("the end of it", `document.querySelector("main .headline.good")`)
	b.Clean()
}

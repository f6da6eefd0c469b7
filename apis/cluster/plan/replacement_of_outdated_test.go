package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestDifferenceFromPool(t *testing.T) {
	t.Parallel()
	ref := func(name string) *v1alpha1.ProviderReference {
		if name == "" {
			return nil
		}
		return &v1alpha1.ProviderReference{Name: name}
	}
	cases := map[string]struct {
		reason                           string
		created, template, ref, provider string
		poolTemplate, poolRef            string
		want                             string
	}{
		"Same":            {"nothing has changed", "small", "small", "", "kubevirt", "small", "", ""},
		"Template":        {"the pool has another size", "small", "small", "", "kubevirt", "large", "", "template small instead of large"},
		"Resized":         {"a user has resized this machine: the pool has not changed", "small", "large", "", "kubevirt", "small", "", ""},
		"ResizedToPool":   {"the machine has the size of the pool already", "small", "large", "", "kubevirt", "large", "", ""},
		"Provider":        {"the pool moves to another hypervisor", "small", "small", "kubevirt", "kubevirt", "small", "proxmox", "provider kubevirt instead of proxmox"},
		"DefaultNamed":    {"the pool names the provider that the machine has by default", "small", "small", "", "kubevirt", "small", "kubevirt", ""},
		"DefaultOther":    {"the machine is on the default provider, and the pool names another", "small", "small", "", "kubevirt", "small", "proxmox", "provider kubevirt instead of proxmox"},
		"BackToDefault":   {"the pool has no provider any more", "small", "small", "proxmox", "proxmox", "small", "", "provider proxmox instead of the default"},
		"BothDifferences": {"both have changed", "small", "small", "a", "a", "large", "b", "template small instead of large, provider a instead of b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &v1alpha1.Machine{}
			m.Labels = map[string]string{v1alpha1.LabelMachineTemplate: tc.created}
			m.Spec.Template, m.Spec.ProviderRef, m.Status.Provider = tc.template, ref(tc.ref), tc.provider
			g := Group{Properties: v1alpha1.MachineProperties{Template: tc.poolTemplate, ProviderRef: ref(tc.poolRef)}}
			if got := DifferenceFromPool(m, g); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestSelectOutdated(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	a, b, c := PoolMachine{name: "a", created: at(1)}, PoolMachine{name: "b", created: at(2)}, PoolMachine{name: "c", created: at(3)}
	with := func(s PoolMachine, change func(*PoolMachine)) PoolMachine {
		change(&s)
		return s
	}
	all := map[string]string{"a": "x", "b": "x", "c": "x"}
	cases := map[string]struct {
		reason   string
		limits   RolloutLimits
		outdated map[string]string
		present  []PoolMachine
		want     []string
	}{
		"Oldest":      {"one after the other, the oldest first", RolloutLimits{1, 0}, all, []PoolMachine{c, a, b}, []string{"a"}},
		"Unhealthy":   {"an unhealthy machine first", RolloutLimits{1, 0}, all, []PoolMachine{a, with(b, func(s *PoolMachine) { s.Unhealthy = true }), c}, []string{"b"}},
		"Both":        {"maxSurge and maxUnavailable add up", RolloutLimits{1, 1}, all, []PoolMachine{a, b, c}, []string{"a", "b"}},
		"NoSurge":     {"without a surge, maxUnavailable machines", RolloutLimits{0, 1}, all, []PoolMachine{a, b, c}, []string{"a"}},
		"Busy":        {"a started replacement counts", RolloutLimits{1, 0}, all, []PoolMachine{with(a, func(s *PoolMachine) { s.Replace = v1alpha1.ReplaceOutdated }), b, c}, nil},
		"Leaving":     {"a removal counts, whatever it is for", RolloutLimits{1, 0}, all, []PoolMachine{with(a, func(s *PoolMachine) { s.Leaving = true }), b, c}, nil},
		"Protected":   {"a protected machine stays", RolloutLimits{1, 0}, all, []PoolMachine{with(a, func(s *PoolMachine) { s.Protected = true }), b}, []string{"b"}},
		"NoneLeft":    {"machines that fit their pool stay", RolloutLimits{2, 0}, map[string]string{"b": "x"}, []PoolMachine{a, b, c}, []string{"b"}},
		"NotOutdated": {"a pool that has not changed", RolloutLimits{1, 0}, nil, []PoolMachine{a, b, c}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, SelectOutdated(tc.present, tc.limits, tc.outdated)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

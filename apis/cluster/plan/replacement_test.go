package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestSelectUnhealthy(t *testing.T) {
	t.Parallel()
	now := time.Unix(100000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	on := HealthCheck{Enabled: true, Timeout: 10 * time.Minute, MinimumAge: 30 * time.Minute, MaxUnhealthy: 2}
	sick := func(name string, since time.Duration) UnhealthyMachine {
		return UnhealthyMachine{Name: name, Since: ago(since), Created: ago(24 * time.Hour)}
	}
	young, kept := sick("young", time.Hour), sick("kept", time.Hour)
	young.Created, kept.Protected = ago(29*time.Minute), true
	cases := map[string]struct {
		reason     string
		check      HealthCheck
		unhealthy  []UnhealthyMachine
		inProgress int
		want       string
		explained  bool
	}{
		"Healthy":    {"nothing to replace", on, nil, 0, "", false},
		"Longest":    {"the longest unhealthy first", on, []UnhealthyMachine{sick("a", 11*time.Minute), sick("b", 12*time.Minute)}, 0, "b", false},
		"NotYet":     {"a restart takes a moment", on, []UnhealthyMachine{sick("a", 9*time.Minute)}, 0, "", true},
		"Off":        {"the health check is off", HealthCheck{}, []UnhealthyMachine{sick("a", time.Hour)}, 0, "", true},
		"InProgress": {"one follows the other", on, []UnhealthyMachine{sick("a", time.Hour)}, 1, "", true},
		"TooMany":    {"a broken network must not empty the cluster", on, []UnhealthyMachine{sick("a", time.Hour), sick("b", time.Hour), sick("c", time.Minute)}, 0, "", true},
		"Young":      {"replacements that never become healthy follow each other slowly", on, []UnhealthyMachine{young}, 0, "", true},
		"Protected":  {"a protected machine cannot be deleted", on, []UnhealthyMachine{kept}, 0, "", true},
		"OtherOne":   {"another one than the protected", on, []UnhealthyMachine{kept, sick("a", 11*time.Minute)}, 0, "a", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, why := SelectUnhealthy(tc.check, tc.unhealthy, tc.inProgress, now)
			if got != tc.want || (why != "") != tc.explained {
				t.Errorf("%s: got %q and explanation %q", tc.reason, got, why)
			}
		})
	}
}

func TestHealthCheckOf(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	group := func(role string, replicas int, spec *v1alpha1.HealthCheck) Group {
		return Group{Role: role, Replicas: replicas, Properties: v1alpha1.MachineProperties{HealthCheck: spec}}
	}
	cases := map[string]struct {
		reason string
		group  Group
		want   HealthCheck
	}{
		"Workers":       {"on for workers, for two fifths of them", group(v1alpha1.RoleWorker, 5, nil), HealthCheck{true, 10 * time.Minute, 30 * time.Minute, 2}},
		"OneWorker":     {"at least one", group(v1alpha1.RoleWorker, 1, nil), HealthCheck{true, 10 * time.Minute, 30 * time.Minute, 1}},
		"ControlPlane":  {"off for the control plane", group(v1alpha1.RoleControlPlane, 3, nil), HealthCheck{false, 10 * time.Minute, 30 * time.Minute, 1}},
		"ByChoice":      {"a control plane of three, by choice", group(v1alpha1.RoleControlPlane, 3, &v1alpha1.HealthCheck{Enabled: &yes}), HealthCheck{true, 10 * time.Minute, 30 * time.Minute, 1}},
		"OneMember":     {"etcd would lose its only member", group(v1alpha1.RoleControlPlane, 1, &v1alpha1.HealthCheck{Enabled: &yes}), HealthCheck{false, 10 * time.Minute, 30 * time.Minute, 1}},
		"Off":           {"off by choice", group(v1alpha1.RoleWorker, 5, &v1alpha1.HealthCheck{Enabled: &no}), HealthCheck{false, 10 * time.Minute, 30 * time.Minute, 2}},
		"TimeAndNumber": {"both by choice", group(v1alpha1.RoleWorker, 5, &v1alpha1.HealthCheck{UnhealthyTimeout: &metav1.Duration{Duration: time.Hour}, MaxUnhealthy: 4}), HealthCheck{true, time.Hour, 3 * time.Hour, 4}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := HealthCheckOf(tc.group); got != tc.want {
				t.Errorf("%s: got %+v, want %+v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestDescribeUnhealthy(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		replaced  []string
		unhealthy int
		why, want string
	}{
		"Healthy":     {"nothing to say", nil, 0, "", ""},
		"Waiting":     {"why none is replaced", nil, 1, "its time has not come", "pool p: 1 machine unhealthy, and none is replaced: its time has not come"},
		"Replaced":    {"the machine that is replaced counts as unhealthy until it is gone", []string{"a"}, 0, "", "pool p: replaces Machine a, whose node is unhealthy"},
		"AnotherToo":  {"a second unhealthy machine waits for the first", []string{"a"}, 1, "another machine is being replaced", "pool p: replaces Machine a, whose node is unhealthy"},
		"InNameOrder": {"the message does not change between deliveries", []string{"b", "a"}, 0, "", "pool p: replaces Machine a, b, whose node is unhealthy"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := DescribeUnhealthy("p", tc.replaced, tc.unhealthy, tc.why); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

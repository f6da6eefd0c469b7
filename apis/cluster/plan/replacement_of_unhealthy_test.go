package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

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
		gone       int
		inProgress int
		want       string
		explained  bool
	}{
		"Healthy":    {"nothing to replace", on, nil, 0, 0, "", false},
		"Longest":    {"the longest unhealthy first", on, []UnhealthyMachine{sick("a", 11*time.Minute), sick("b", 12*time.Minute)}, 0, 0, "b", false},
		"NotYet":     {"a restart takes a moment", on, []UnhealthyMachine{sick("a", 9*time.Minute)}, 0, 0, "", true},
		"Off":        {"the health check is off", HealthCheck{}, []UnhealthyMachine{sick("a", time.Hour)}, 0, 0, "", true},
		"InProgress": {"one follows the other", on, []UnhealthyMachine{sick("a", time.Hour)}, 0, 1, "", true},
		"TooMany":    {"a broken network must not empty the cluster", on, []UnhealthyMachine{sick("a", time.Hour), sick("b", time.Hour), sick("c", time.Minute)}, 0, 0, "", true},
		"Lost host":  {"a Machine on it cannot be deleted", on, []UnhealthyMachine{sick("a", time.Hour)}, 1, 0, "a", false},
		"Lost hosts": {"deleted Machines count until they are gone", on, []UnhealthyMachine{sick("a", time.Hour)}, 2, 0, "", true},
		"Young":      {"replacements that never become healthy follow each other slowly", on, []UnhealthyMachine{young}, 0, 0, "", true},
		"Protected":  {"a protected machine cannot be deleted", on, []UnhealthyMachine{kept}, 0, 0, "", true},
		"OtherOne":   {"another one than the protected", on, []UnhealthyMachine{kept, sick("a", 11*time.Minute)}, 0, 0, "a", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, why := SelectUnhealthy(tc.check, tc.unhealthy, tc.gone, tc.inProgress, now)
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
		"Replaced":    {"the machine that is replaced counts as unhealthy until it is gone", []string{"a"}, 0, "", "pool p: replacing Machine a, whose node is unhealthy"},
		"AnotherToo":  {"a second unhealthy machine waits for the first", []string{"a"}, 1, "another machine is being replaced", "pool p: replacing Machine a, whose node is unhealthy; 1 machine unhealthy beside it: another machine is being replaced"},
		"InNameOrder": {"the message does not change between deliveries", []string{"b", "a"}, 0, "", "pool p: replacing Machine a, b, whose node is unhealthy"},
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

package network

import (
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/transport"
)

// networks returns a list of NetworkNamespaces.
func networks(names []string) (list v1alpha2.NetworkNamespaceList) {
	for _, name := range names {
		list.Items = append(list.Items, v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return list
}

func TestFindOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason          string
		cached, present []string
		want, unknown   string
		asked           []string
	}{
		"Cached":    {"the cache has the only one", []string{"a"}, []string{"a"}, "a", "", []string{"0"}},
		"New":       {"the cache lacks the network that caused the event", nil, []string{"a"}, "a", "", []string{"0", ""}},
		"Deleted":   {"the cache has a network that was deleted", []string{"a", "b"}, []string{"b"}, "b", "", []string{"0", ""}},
		"None":      {"there is none", nil, nil, "", "NoNetworkNamespace", []string{"0", ""}},
		"Ambiguous": {"nothing says which", []string{"a", "b"}, []string{"a", "b"}, "", "NetworkNamespaceAmbiguous", []string{"0", ""}},
	} {
		var asked []string
		client, err := kube.New(&rest.Config{Host: "server", QPS: -1, Transport: transport.Lists(networks(tc.cached), networks(tc.present), &asked)}, "test",
			kube.Kinds(v1alpha2.GroupVersion, &v1alpha2.NetworkNamespace{}, &v1alpha2.NetworkNamespaceList{}))
		if err != nil {
			t.Fatal(err)
		}
		got, err := FindOnly(t.Context(), client, "default")
		var unresolved Unresolved
		if errors.As(err, &unresolved); got != tc.want || unresolved.Reason != tc.unknown || (err != nil) != (tc.unknown != "") {
			t.Errorf("%s: %s: got %q, %v, want %q, %s", name, tc.reason, got, err, tc.want, tc.unknown)
		}
		if !slices.Equal(asked, tc.asked) {
			t.Errorf("%s: %s: asked for the versions %q, want %q", name, tc.reason, asked, tc.asked)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	ready := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason}}
	}
	for name, tc := range map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       bool
	}{
		"None":      {"the first network may be the one", ready(metav1.ConditionFalse, "NoNetworkNamespace"), true},
		"NotFound":  {"it may be the named one", ready(metav1.ConditionFalse, "NetworkNamespaceNotFound"), true},
		"Ambiguous": {"another network does not resolve the ambiguity", ready(metav1.ConditionFalse, "NetworkNamespaceAmbiguous"), false},
		"Found":     {"it has a network", ready(metav1.ConditionTrue, "MachineRunning"), false},
		"New":       {"its own event follows", nil, false},
	} {
		if got := IsMissing(tc.conditions); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

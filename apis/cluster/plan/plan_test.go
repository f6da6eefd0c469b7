package plan

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// example returns the cluster of the documentation's first example.
func example(t *testing.T) *v1alpha1.KubernetesCluster {
	t.Helper()
	doc, err := apis.Examples.ReadFile("examples/simple-kubernetescluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kc := &v1alpha1.KubernetesCluster{}
	if err := yaml.UnmarshalStrict(doc, kc); err != nil {
		t.Fatal(err)
	}
	kc.Namespace = "default"
	return kc
}

func TestMake(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.KubernetesCluster)
		names  []string
		mode   v1alpha1.EndpointMode
		why    string
	}{
		"Example": {
			reason: "control planes are first, and ordinals start at zero",
			names:  []string{"simple-cluster-cp-0", "simple-cluster-worker-pool-1-0", "simple-cluster-worker-pool-1-1"},
			mode:   v1alpha1.EndpointNode,
		},
		"HighlyAvailable": {
			reason: "several control planes share a virtual address",
			change: func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Topology.ControlPlane.Replicas, kc.Spec.Topology.Workers = 3, nil
			},
			names: []string{"simple-cluster-cp-0", "simple-cluster-cp-1", "simple-cluster-cp-2"}, mode: v1alpha1.EndpointVIP,
		},
		"Custom": {
			reason: "an endpoint in the spec overrides the default",
			change: func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Topology.Workers = nil
				kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointCustom, Host: "api.example.com"}
			},
			names: []string{"simple-cluster-cp-0"}, mode: v1alpha1.EndpointCustom,
		},
		"Even":        {reason: "two members have no majority without one of them", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.ControlPlane.Replicas = 2 }, why: "InvalidTopology"},
		"LongName":    {reason: "the length of a host name is limited", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Name = strings.Repeat("p", 60) }, why: "InvalidTopology"},
		"SamePool":    {reason: "two machines cannot have the same name", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Name = "cp" }, why: "InvalidTopology"},
		"TooNew":      {reason: "this Talos does not support it yet", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.ControlPlane.Version = "1.37.1" }, why: "KubernetesVersionNotSupported"},
		"TooOld":      {reason: "this Talos no longer supports it", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.ControlPlane.Version = "1.29" }, why: "KubernetesVersionNotSupported"},
		"Unknown":     {reason: "this version does not exist", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.ControlPlane.Version = "1.99" }, why: "KubernetesVersionUnknown"},
		"PoolVersion": {reason: "a pool has a version of its own", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Version = "1.99" }, why: "KubernetesVersionUnknown"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := example(t)
			if tc.change != nil {
				tc.change(kc)
			}
			p, err := Make(kc, nil, DefaultTalosVersion)
			var f usererror.Error
			if errors.As(err, &f); f.Reason != tc.why {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.why)
			}
			if err != nil {
				return
			}
			var names []string
			for _, m := range p.Members {
				names = append(names, m.Name)
			}
			if diff := cmp.Diff(tc.names, names); diff != "" || p.Endpoint.Mode != tc.mode {
				t.Errorf("%s: endpoint %s, machines (-want +got):\n%s", tc.reason, p.Endpoint.Mode, diff)
			}
		})
	}
}

// TestRemediesOfVersions follows the messages literally. The suggested version has to be accepted.
func TestRemediesOfVersions(t *testing.T) {
	t.Parallel()
	write := regexp.MustCompile(`write (?:a version from |at least )?([0-9.]+)`)
	cases := map[string]struct {
		reason, running string
		wanted          v1alpha1.KubernetesVersion
	}{
		"Old":       {"a minor version that no Talos supports any more", "", "1.20"},
		"OldFull":   {"a release that this Talos no longer supports", "", "1.29.15"},
		"New":       {"a minor version that is not released", "", "1.99"},
		"Downgrade": {"a running cluster cannot be downgraded", "1.34.2", "1.33"},
		"Leap":      {"a running cluster cannot skip a minor version", "1.33.4", "1.35"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := example(t)
			kc.Status.Version, kc.Spec.Topology.Version = tc.running, tc.wanted
			kc.Spec.Topology.ControlPlane.Version, kc.Spec.Topology.Workers = "", nil
			_, err := Make(kc, nil, DefaultTalosVersion)
			if err == nil {
				t.Fatalf("%s: the version is accepted", tc.reason)
			}
			found := write.FindStringSubmatch(err.Error())
			if found == nil {
				t.Fatalf("%s: the message does not name a version: %v", tc.reason, err)
			}
			kc.Spec.Topology.Version = v1alpha1.KubernetesVersion(found[1])
			if _, again := Make(kc, nil, DefaultTalosVersion); again != nil {
				t.Errorf("%s: %v, but %s is rejected too: %v", tc.reason, err, found[1], again)
			}
		})
	}
}

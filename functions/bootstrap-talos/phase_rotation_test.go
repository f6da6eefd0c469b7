package main

import (
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
)

func TestMirrorRotation(t *testing.T) {
	t.Parallel()
	one := &v1alpha1.AuthoritiesStatus{Rotation: "one", Phase: v1alpha1.RotationIssuing}
	for name, tc := range map[string]struct {
		reason   string
		wanted   string
		contract *config.VersionContract
		status   *v1alpha1.AuthoritiesStatus
		keys     talos.Keys
		want     string
		done     string
		err      string
	}{
		"never":       {"no rotation was requested", "", config.TalosVersion1_13, nil, talos.Keys{}, "", "", ""},
		"asked":       {"a rotation starts only in a healthy cluster", "one", config.TalosVersion1_13, nil, talos.Keys{}, "WaitingForCluster", "", ""},
		"old":         {"Talos before 1.7 has no accepted authorities", "one", config.TalosVersion1_6, nil, talos.Keys{}, "TalosTooOld", "", ""},
		"at creation": {"the keys were created with this value", "one", config.TalosVersion1_13, nil, talos.Keys{Rotated: "one"}, "AuthoritiesRotated", "one", ""},
		"under way":   {"the Secret records the phase", "one", config.TalosVersion1_13, nil, talos.Keys{Next: &secrets.Bundle{}, Rotation: "one", Phase: v1alpha1.RotationIssuing}, "Issuing", "", ""},
		"taken back":  {"a started rotation is completed", "", config.TalosVersion1_13, one, talos.Keys{Next: &secrets.Bundle{}, Rotation: "one", Phase: v1alpha1.RotationRemovingTalos}, "RemovingTalos", "", ""},
		"next keys gone": {"the nodes have certificates that only they can verify", "one", config.TalosVersion1_13, one, talos.Keys{}, "", "",
			"KeysLost: Secret shop-talos-secrets-next is gone"},
		"ended":      {"the delivery died before it wrote the status", "one", config.TalosVersion1_13, &v1alpha1.AuthoritiesStatus{Rotation: "one", Phase: v1alpha1.RotationFinishing}, talos.Keys{Rotated: "one"}, "AuthoritiesRotated", "one", ""},
		"another":    {"the first rotation is done", "two", config.TalosVersion1_13, &v1alpha1.AuthoritiesStatus{Completed: "one"}, talos.Keys{Rotated: "one"}, "WaitingForCluster", "one", ""},
		"half begun": {"the status was written, and the keys were not created", "one", config.TalosVersion1_13, &v1alpha1.AuthoritiesStatus{Rotation: "one", Phase: v1alpha1.RotationAccepting}, talos.Keys{}, "Accepting", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			kc.Spec.Talos, kc.Status.Authorities = &v1alpha1.TalosOptions{RotateAuthorities: tc.wanted}, tc.status
			c := &cluster{KubernetesCluster: kc, observed: observed{keys: &tc.keys}}
			c.plan.Contract = tc.contract
			err := c.recordRotation(metav1.Now())
			if (err == nil) != (tc.err == "") || (err != nil && !strings.HasPrefix(err.Error(), tc.err)) {
				t.Fatalf("%s: %v, want %q", tc.reason, err, tc.err)
			}
			if c.report.authorities.reason != tc.want || c.report.authorities.current != (tc.want == v1alpha1.ConditionAuthoritiesRotated) {
				t.Errorf("%s: the condition has %+v, want %q", tc.reason, c.report.authorities, tc.want)
			}
			if a := kc.Status.Authorities; tc.done != "" && (a == nil || a.Completed != tc.done || a.Phase != "") {
				t.Errorf("%s: the status has %+v, want completed %q", tc.reason, a, tc.done)
			}
		})
	}
}

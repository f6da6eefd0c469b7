package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestFindUnknownTemplate(t *testing.T) {
	t.Parallel()
	class := v1alpha1.MachineClass{}
	class.Name = "gpu-xl"
	topology := func(plane, pool string) v1alpha1.ClusterTopology {
		t := v1alpha1.ClusterTopology{Workers: []v1alpha1.WorkerPool{{Name: "first"}, {Name: "gpu"}}}
		t.ControlPlane.Template, t.Workers[1].Template = plane, pool
		return t
	}
	for name, tc := range map[string]struct {
		reason   string
		spec     v1alpha1.ClusterTopology
		accepted *v1alpha1.AcceptedSpec
		classes  []v1alpha1.MachineClass
		pool     string
	}{
		"BuiltIn":      {"needs no object", topology("small", ""), nil, nil, ""},
		"Class":        {"the object exists", topology("", "gpu-xl"), nil, []v1alpha1.MachineClass{class}, ""},
		"Missing":      {"the object does not exist", topology("", "gpu-xl"), nil, nil, "gpu"},
		"Other":        {"another object exists", topology("", "gpu-xs"), nil, []v1alpha1.MachineClass{class}, "gpu"},
		"ControlPlane": {"the control plane has a template too", topology("gpu-xl", "gpu-xl"), nil, nil, "cp"},
		"Accepted":     {"a cluster goes on without its MachineClass", topology("", "gpu-xl"), &v1alpha1.AcceptedSpec{Topology: topology("large", "gpu-xl")}, nil, ""},
		"OtherPool":    {"another pool with the same template is new", topology("gpu-xl", "gpu-xl"), &v1alpha1.AcceptedSpec{Topology: topology("", "gpu-xl")}, nil, "cp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{Spec: v1alpha1.KubernetesClusterSpec{Topology: tc.spec}}
			kc.Status.Accepted = tc.accepted
			pool, err := FindUnknownTemplate(kc, tc.classes)
			var problem usererror.Error
			if errors.As(err, &problem); pool != tc.pool || (problem.Reason == "TemplateNotFound") != (pool != "") {
				t.Errorf("%s: got pool %q, %v, want %q", tc.reason, pool, err, tc.pool)
			}
			if err != nil && !strings.HasPrefix(problem.Message, "pool "+tc.pool+": template ") {
				t.Errorf("%s: %v does not name the pool", tc.reason, err)
			}
		})
	}
}

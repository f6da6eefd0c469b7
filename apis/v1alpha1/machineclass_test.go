package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestFindMachineClass(t *testing.T) {
	t.Parallel()
	named := func(names ...string) (all []v1alpha1.MachineClass) {
		for _, name := range names {
			c := v1alpha1.MachineClass{}
			c.Name, c.Spec.Disks = name, []v1alpha1.MachineDisk{{Name: "of-" + name}}
			all = append(all, c)
		}
		return all
	}
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("m%02d", i))
	}
	const ask = ", or ask the platform team to create MachineClass huge"
	for name, tc := range map[string]struct {
		reason, template string
		classes          []v1alpha1.MachineClass
		disk, err        string
	}{
		"BuiltIn":  {"needs no object", "medium", nil, "root", ""},
		"Class":    {"an object of that name", "m2", named("m1", "m2"), "of-m2", ""},
		"Shadowed": {"an object cannot replace a built-in size", "small", named("small"), "root", ""},
		"Unknown":  {"the message lists the built-in names", "huge", nil, "", `template "huge" does not exist: write small, medium or large` + ask},
		"Listed":   {"the message lists the MachineClasses too, sorted", "huge", named("z", "gpu"), "", `template "huge" does not exist: write small, medium, large, gpu or z` + ask},
		"Many":     {"a condition has room for some names only", "huge", named(many...), "", "m18, m19 or another one of kubectl get machineclasses" + ask},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := v1alpha1.FindMachineClass(tc.template, tc.classes)
			switch {
			case tc.err != "":
				if err == nil || !strings.HasSuffix(err.Error(), tc.err) {
					t.Errorf("%s: got error %v, want %s", tc.reason, err, tc.err)
				}
			case err != nil || len(got.Disks) != 1 || got.Disks[0].Name != tc.disk:
				t.Errorf("%s: got %+v, %v", tc.reason, got, err)
			}
		})
	}
}

func TestBuiltInClasses(t *testing.T) {
	t.Parallel()
	for _, c := range v1alpha1.BuiltInClasses() {
		if !v1alpha1.IsBuiltInClass(c.Name) {
			t.Errorf("%s is not built in", c.Name)
		}
	}
	if v1alpha1.IsBuiltInClass("gpu-xl") {
		t.Error("gpu-xl is built in")
	}
	for _, role := range []string{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		if name := v1alpha1.DefaultMachineTemplate(role); !v1alpha1.IsBuiltInClass(name) {
			t.Errorf("the default %s of %s needs a MachineClass", name, role)
		}
	}
}

func TestNormalizedMAC(t *testing.T) {
	t.Parallel()
	for _, mac := range []v1alpha1.MACAddress{"52:54:00:aa:bb:cc", "52:54:00:AA:BB:CC", "52-54-00-AA-BB-CC"} {
		if got := mac.Normalized(); got != "52:54:00:aa:bb:cc" {
			t.Errorf("%s: got %s", mac, got)
		}
	}
}

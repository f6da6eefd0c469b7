package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestMachineTemplates(t *testing.T) {
	t.Parallel()
	_, err := v1alpha1.FindMachineTemplate("huge")
	if err == nil {
		t.Fatal("template huge exists")
	}
	for _, template := range v1alpha1.MachineTemplates() {
		found, unknown := v1alpha1.FindMachineTemplate(template.Name)
		if unknown != nil || found != template {
			t.Errorf("%s: got %+v, %v", template.Name, found, unknown)
		}
		for _, size := range []v1alpha1.Size{template.Memory, template.Disk} {
			if q, err := size.Quantity(); err != nil || q.Sign() <= 0 {
				t.Errorf("%s: size %q is %v, %v", template.Name, size, q, err)
			}
		}
		if !strings.Contains(err.Error(), template.Name) {
			t.Errorf("the error %q does not name %s", err, template.Name)
		}
	}
	for _, role := range []string{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		if _, err := v1alpha1.FindMachineTemplate(v1alpha1.DefaultMachineTemplate(role)); err != nil {
			t.Errorf("%s: %v", role, err)
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

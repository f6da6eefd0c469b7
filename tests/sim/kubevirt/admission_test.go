package kubevirt_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/kubevirt"
)

// TestRefusedOnTheWire checks that the API server answers with KubeVirt's messages. Package admission
// tests each rule.
func TestRefusedOnTheWire(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	const machines = `admission webhook "virtualmachine-validator.kubevirt.io" denied the request: `
	cases := map[string]struct {
		reason string
		edit   []string
		want   string
	}{
		"MachineType": {
			"i440fx is not an allowed type", []string{"memory: {guest: 4Gi}", "memory: {guest: 4Gi}\n        machine: {type: pc-i440fx}"},
			machines + "spec.template.spec.domain.machine.type is not supported: pc-i440fx (allowed values: [q35* pc-q35*])",
		},
		"UserData": {
			"inline user data is limited", []string{`"#cloud-config"`, `"` + strings.Repeat("x", 2049) + `"`},
			machines + "spec.template.spec.volumes[1].cloudInitNoCloud userdata exceeds 2048 byte limit. Should use UserDataSecretRef for larger data.",
		},
		"SecureBoot": {
			"EFI implies secure boot", []string{"memory: {guest: 4Gi}", "memory: {guest: 4Gi}\n        firmware: {bootloader: {efi: {}}}"},
			machines + "spec.template.spec.domain has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled.",
		},
		"RunStrategy": {
			"running and runStrategy exclude each other", []string{"runStrategy: Always", "runStrategy: Always\n  running: true"},
			machines + "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
		},
		"Two": {
			"all causes are listed", []string{"model: virtio", "model: tulip", "bus: virtio", "bus: ide"},
			machines + "interface spec.template.spec.domain.devices.interfaces[0].name uses model tulip that is not supported., IDE bus is not supported, IDE bus is not supported",
		},
		"Type": {
			"a wrong type is rejected before the CustomResourceDefinition is checked", mistake[:],
			`admission webhook "virtualmachines-mutator.kubevirt.io" denied the request: spec.template.spec.domain.cpu.cores in body must be of type integer: "string"`,
		},
		"Definition": {
			"the CustomResourceDefinition rejects what no webhook checks", []string{"cores: 2", "cores: -2"},
			"spec.template.spec.domain.cpu.cores",
		},
		"Unknown": {
			"strict field validation rejects unknown fields", []string{"cores: 2", "cores: 2, coars: 3"},
			`unknown field "spec.template.spec.domain.cpu.coars"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.with(t).try(strings.NewReplacer(tc.edit...).Replace(machineManifest))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v\nwant %s", tc.reason, err, tc.want)
			}
		})
	}

	err := c.try(fromFTP())
	want := `admission webhook "datavolume-validate.cdi.kubevirt.io" denied the request: spec.source Invalid source URL scheme: ftp://x/y`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a DataVolume from ftp: got %v\nwant %s", err, want)
	}
}

// mistake is a wrong type in a VirtualMachine, and its replacement.
var mistake = [2]string{"cores: 2", `cores: "two"`}

// mistyped returns a VirtualMachine that the mutating webhook rejects.
func mistyped() string { return strings.NewReplacer(mistake[:]...).Replace(machineManifest) }

// fromFTP returns a DataVolume that CDI rejects.
func fromFTP() string {
	return strings.Replace(imported, "https://images.example.org/talos.raw.xz", "ftp://x/y", 1)
}

func TestInstanceIsKubeVirts(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(manifest())
	c.vmi("m", "it runs", isRunning)

	change := func(patch string) error {
		_, err := c.in(vmis).Patch(t.Context(), "m", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := change(`{"spec":{"domain":{"memory":{"guest":"8Gi"}}}}`); err == nil || !strings.Contains(err.Error(), "update of VMI object is restricted") {
		t.Errorf("a change of an instance's spec: got %v", err)
	}
	if err := change(`{"metadata":{"labels":{"kubevirt.io/nodeName":"elsewhere"}}}`); err == nil || !strings.Contains(err.Error(), "reserved kubevirt.io/ labels") {
		t.Errorf("a change of a reserved label: got %v", err)
	}
	if err := change(`{"metadata":{"labels":{"mine":"yes"}},"status":{"phase":"Failed"}}`); err != nil {
		t.Errorf("a change of an own label: got %v", err)
	}
	vmi := c.vmi("m", "it exists", func(*virtv1.VirtualMachineInstance) bool { return true })
	if vmi.Status.Phase != virtv1.Running || vmi.Labels["mine"] != "yes" {
		t.Errorf("phase is %s and label is %q; want the status kept and the label set", vmi.Status.Phase, vmi.Labels["mine"])
	}
}

func TestInstanceRefusedLater(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(manifest("memory: {guest: 4Gi}", "memory: {}"))
	vm := c.vm("m", "its start failed", func(vm *virtv1.VirtualMachine) bool {
		for _, cond := range vm.Status.Conditions {
			if cond.Type == virtv1.VirtualMachineFailure {
				return cond.Reason == "FailedCreate"
			}
		}
		return false
	})
	for _, cond := range vm.Status.Conditions {
		want := "no memory requested, at least one of 'spec.domain.memory.guest', 'spec.domain.memory.hugepages.pageSize' or 'spec.domain.resources.requests.memory' must be set"
		if cond.Type == virtv1.VirtualMachineFailure && !strings.Contains(cond.Message, want) {
			t.Errorf("the failure says %q", cond.Message)
		}
	}
}

func TestDeadSimulatorBlocksNoDeletion(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(manifest())
	c.status("m", virtv1.VirtualMachineStatusRunning)
	c.stop()
	if err := c.try(strings.ReplaceAll(machineManifest, "name: m,", "name: other,")); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a machine without admission: got %v, want a failed webhook", err)
	}
	c.delete(vms, "m")
	c.patch(vms, "m", `{"metadata":{"labels":{"seen":"yes"}}}`)
	c.run()
	c.gone(vms, "m")
	c.gone(vmis, "m")
}

func TestCRDsAreServed(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := client.Resource(vms.GroupVersion().WithResource("kubevirts")).Namespace("kubevirt").Get(t.Context(), "kubevirt", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status, _ := kv.Object["status"].(map[string]any)
	if status["observedKubeVirtVersion"] != "v1.9.0" || status["phase"] != "Deployed" {
		t.Errorf("KubeVirt reports %v", status)
	}
	profile, err := client.Resource(dvs.GroupVersion().WithResource("storageprofiles")).Get(t.Context(), "fast-ssd", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := profile.Object["status"].(map[string]any); status["storageClass"] != "fast-ssd" {
		t.Errorf("the storage profile reports %v", status)
	}
}

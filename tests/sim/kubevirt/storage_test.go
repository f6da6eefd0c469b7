package kubevirt_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func isBound(p *corev1.PersistentVolumeClaim) bool { return p.Status.Phase == corev1.ClaimBound }

func TestClaims(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		class  string
		bound  bool
		want   string // the class of the claim in the end
	}{
		"Named":   {"a claim of a provisioned class is bound", "storageClassName: fast-ssd", true, "fast-ssd"},
		"Default": {"a claim without a class gets the default class", "", true, "standard"},
		"Unknown": {"a claim of an unknown class remains pending", "storageClassName: nowhere", false, "nowhere"},
		"None":    {"a claim with an empty class remains pending", `storageClassName: ""`, false, ""},
	}
	c := start(t, kubevirt.Options{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := c.with(t)
			object := "m-" + strings.ToLower(name)
			c.apply(strings.NewReplacer("m-root", object, "storageClassName: fast-ssd", tc.class).Replace(claimManifest))
			later := object + "-later"
			c.apply(strings.ReplaceAll(claimManifest, "m-root", later))
			c.claim(later, "a claim made later is bound", isBound)
			claim := c.claim(object, "it is bound, if it should be", func(p *corev1.PersistentVolumeClaim) bool {
				return isBound(p) || !tc.bound
			})
			if class := claim.Spec.StorageClassName; class == nil || *class != tc.want {
				t.Errorf("%s: class is %v, want %q", tc.reason, class, tc.want)
			}
			if !tc.bound && isBound(claim) {
				t.Errorf("%s: it is bound", tc.reason)
			}
			if !tc.bound {
				return
			}
			volume := get[corev1.PersistentVolume](c, pvs, claim.Spec.VolumeName)
			if volume == nil || volume.Spec.ClaimRef.UID != claim.UID || volume.Spec.StorageClassName != tc.want {
				t.Errorf("%s: volume is %+v", tc.reason, volume)
			}
			if got := claim.Status.Capacity.Storage().String(); got != "20Gi" {
				t.Errorf("%s: capacity is %s, want 20Gi", tc.reason, got)
			}
		})
	}
}

func TestUnknownClassIsReported(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(manifest("fast-ssd", "nowhere"))
	vm := c.status("m", virtv1.VirtualMachineStatusUnschedulable)
	found := false
	for _, cond := range vm.Status.Conditions {
		found = found || (cond.Type == "PodScheduled" && strings.Contains(cond.Message, "unbound immediate PersistentVolumeClaims"))
	}
	if !found {
		t.Errorf("the conditions do not report the unbound claim: %+v", vm.Status.Conditions)
	}
	c.event("ProvisioningFailed", `storageclass.storage.k8s.io "nowhere" not found`)
}

func TestWaitForFirstConsumer(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{StorageClasses: []kubevirt.StorageClass{{Name: "local", WaitForFirstConsumer: true}}})
	c.apply(manifest("fast-ssd", "local", "runStrategy: Always", "runStrategy: Halted"))
	c.status("m", virtv1.VirtualMachineStatusStopped)
	if claim := get[corev1.PersistentVolumeClaim](c, pvcs, "m-root"); isBound(claim) {
		t.Fatal("a claim was bound before its first consumer")
	}
	c.patch(vms, "m", `{"spec":{"runStrategy":"Always"}}`)
	vmi := c.vmi("m", "it runs", isRunning)
	claim := c.claim("m-root", "it is bound", isBound)
	if got := claim.Annotations["volume.kubernetes.io/selected-node"]; got != vmi.Status.NodeName {
		t.Errorf("the claim was bound for node %q, the machine runs on %q", got, vmi.Status.NodeName)
	}
}

func TestClaimsGrow(t *testing.T) {
	t.Parallel()
	onlySimulated(t, "it reports the new size when virt-handler changes the instance the next time, and nothing here does so")
	c := start(t, kubevirt.Options{StorageClasses: []kubevirt.StorageClass{
		{Name: "fast-ssd", Expandable: true}, {Name: "rigid"},
	}})
	c.apply(manifest())
	c.vmi("m", "it runs", isRunning)
	c.patch(pvcs, "m-root", `{"spec":{"resources":{"requests":{"storage":"40Gi"}}}}`)
	claim := c.claim("m-root", "it has grown", func(p *corev1.PersistentVolumeClaim) bool {
		return p.Status.Capacity.Storage().String() == "40Gi"
	})
	volume := get[corev1.PersistentVolume](c, pvs, claim.Spec.VolumeName)
	if got := volume.Spec.Capacity.Storage().String(); got != "40Gi" {
		t.Errorf("the volume has %s, want 40Gi", got)
	}
	c.vmi("m", "the status has the size", func(vmi *virtv1.VirtualMachineInstance) bool {
		for _, v := range vmi.Status.VolumeStatus {
			if v.Name == "root" && v.PersistentVolumeClaimInfo.Capacity.Storage().String() == "40Gi" {
				return true
			}
		}
		return false
	})

	c.apply(strings.NewReplacer("m-root", "stiff", "fast-ssd", "rigid").Replace(claimManifest))
	c.claim("stiff", "it is bound", isBound)
	_, err := c.in(pvcs).Patch(t.Context(), "stiff", "application/merge-patch+json",
		[]byte(`{"spec":{"resources":{"requests":{"storage":"40Gi"}}}}`), metav1.PatchOptions{})
	if err == nil {
		t.Error("a claim of a class that is not expandable was resized")
	}
}

const imported = `
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: image}
spec:
  source: {http: {url: "https://images.example.org/talos.raw.xz"}}
  storage: {storageClassName: fast-ssd, resources: {requests: {storage: 10Gi}}}
`

func TestDataVolume(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(imported)
	dv := c.dv("image", "it is imported", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.Succeeded })
	if dv.Status.Progress != "100.0%" || dv.Status.ClaimName != "image" {
		t.Errorf("status is %+v", dv.Status)
	}
	claim := c.claim("image", "it is bound", isBound)
	if !metav1.IsControlledBy(claim, dv) || claim.Spec.AccessModes[0] != corev1.ReadWriteMany || *claim.Spec.VolumeMode != corev1.PersistentVolumeBlock {
		t.Errorf("claim has owner %v, modes %v and %v; want the first set of the storage profile", claim.OwnerReferences, claim.Spec.AccessModes, *claim.Spec.VolumeMode)
	}
	c.delete(dvs, "image")
	c.gone(pvcs, "image")
	eventually(c, pvs, "none", "no volume is left", func(*corev1.PersistentVolume) bool { return len(c.volumesLeft()) == 0 })
}

// bootFromImage makes the machine's root disk an import by a template.
func bootFromImage() string {
	machine := strings.NewReplacer(
		"persistentVolumeClaim: {claimName: m-root}", "dataVolume: {name: m-root}",
		"  template:\n    metadata", `  dataVolumeTemplates:
  - metadata: {name: m-root}
    spec:
      source: {http: {url: "https://images.example.org/talos.raw.xz"}}
      storage: {storageClassName: fast-ssd, resources: {requests: {storage: 10Gi}}}
  template:
    metadata`).Replace(machineManifest)
	return networkManifest + "---\n" + machine
}

func TestMachineBootsFromDataVolume(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	if err := plan.Set(faults.Rule{Operation: "dv/import/images.example.org", Error: "dial tcp: lookup images.example.org: no such host"}); err != nil {
		t.Fatal(err)
	}
	c := start(t, kubevirt.Options{Plan: plan})
	c.apply(bootFromImage())
	c.status("m", virtv1.VirtualMachineStatusDataVolumeError)
	dv := c.dv("m-root", "it reports why", func(dv *cdiv1.DataVolume) bool { return dv.Status.RestartCount > 0 })
	said := false
	for _, cond := range dv.Status.Conditions {
		said = said || (cond.Type == cdiv1.DataVolumeRunning && cond.Status == corev1.ConditionFalse && cond.Reason == "Error" &&
			cond.Message == `Unable to connect to http data source: HTTP request errored: Get "https://images.example.org/talos.raw.xz": dial tcp: lookup images.example.org: no such host`)
	}
	if !said || dv.Status.Phase != cdiv1.ImportInProgress {
		t.Errorf("phase is %s, conditions are %+v", dv.Status.Phase, dv.Status.Conditions)
	}

	if err := plan.Set(); err != nil {
		t.Fatal(err)
	}
	c.vmi("m", "it runs", isRunning)
	guest, _ := c.guests.named("m")
	if guest.Image != "https://images.example.org/talos.raw.xz" {
		t.Errorf("the guest boots %q", guest.Image)
	}
	c.delete(vms, "m")
	c.gone(dvs, "m-root")
	c.gone(pvcs, "m-root")
	eventually(c, pvs, "none", "no volume is left", func(*corev1.PersistentVolume) bool { return len(c.volumesLeft()) == 0 })
}

func TestDataVolumeWaitsForConsumer(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{StorageClasses: []kubevirt.StorageClass{{Name: "lazy", WaitForFirstConsumer: true}}})
	c.apply(strings.ReplaceAll(imported, "fast-ssd", "lazy"))
	c.dv("image", "it waits", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.PendingPopulation })
	c.apply(strings.ReplaceAll(bootFromImage(), "fast-ssd", "lazy"))
	c.vmi("m", "it runs", isRunning)
	c.dv("m-root", "it was imported for the machine", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.Succeeded })
	c.apply(strings.NewReplacer("fast-ssd", "lazy", "{name: image}",
		`{name: eager, annotations: {cdi.kubevirt.io/storage.bind.immediate.requested: "true"}}`).Replace(imported))
	c.dv("eager", "it is imported at once", func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase == cdiv1.Succeeded })
	if dv := get[cdiv1.DataVolume](c, dvs, "image"); dv.Status.Phase != cdiv1.PendingPopulation {
		t.Errorf("a DataVolume without consumer is in phase %s", dv.Status.Phase)
	}
}

// TestTogether starts simulators of an API server that lacks their storage class, at the same time.
func TestTogether(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	const simulators = 8
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan struct{}, simulators), make(chan error, simulators)
	for range simulators {
		options := kubevirt.Options{
			Namespace: server.Namespace(t), StorageClasses: []kubevirt.StorageClass{{Name: "together"}}, Ready: func() { ready <- struct{}{} },
		}
		go func() { ended <- kubevirt.New(server.Config(), options).Run(ctx) }()
	}
	for range simulators {
		select {
		case <-ready:
		case err := <-ended:
			t.Fatalf("a simulator ended: %v", err)
		}
	}
	cancel()
	for range simulators {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestMissingClaim(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(networkManifest + "---\n" + machineManifest)
	c.status("m", virtv1.VirtualMachineStatusPvcNotFound)
	vmi := c.vmi("m", "it reports why", func(vmi *virtv1.VirtualMachineInstance) bool { return len(vmi.Status.Conditions) == 3 })
	want := "PVC " + c.namespace + "/m-root does not exist, waiting for it to appear"
	for _, cond := range vmi.Status.Conditions {
		if cond.Type == virtv1.VirtualMachineInstanceSynchronized && (cond.Reason != "FailedPvcNotFound" || cond.Message != want) {
			t.Errorf("condition is %+v", cond)
		}
	}
	c.apply(claimManifest)
	c.status("m", virtv1.VirtualMachineStatusRunning)
}

package kubevirt

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestVMState(t *testing.T) {
	t.Parallel()
	const unbound = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
	cases := map[string]struct {
		reason string
		status kubevirtv1.VirtualMachinePrintableStatus
		detail string
		before v1alpha1.MachinePhase
		power  v1alpha1.PowerState
		phase  v1alpha1.MachinePhase
		why    string
		failed bool
	}{
		"Running":       {reason: "it runs", status: "Running", phase: "Running"},
		"Migrating":     {reason: "it keeps running, on another host", status: "Migrating", before: "Running", phase: "Running"},
		"Paused":        {reason: "a paused guest still runs", status: "Paused", before: "Running", phase: "Running", why: "Paused"},
		"Off":           {reason: "spec.powerState is Stopped", status: "Stopped", before: "Running", power: "Stopped", phase: "Stopped", why: "Stopped"},
		"NotStarted":    {reason: "it has not been started yet", status: "Stopped", phase: "Creating", why: "Starting"},
		"StartedAgain":  {reason: "KubeVirt starts it again", status: "Stopped", before: "Running", phase: "Running", why: "Starting"},
		"Stopping":      {reason: "it is not off yet", status: "Stopping", before: "Running", power: "Stopped", phase: "Running", why: "Stopping"},
		"Terminating":   {reason: "a user deletes the virtual machine", status: "Terminating", before: "Running", phase: "Running", why: "Stopping"},
		"Provisioning":  {reason: "CDI works", status: "Provisioning", phase: "Creating", why: "Provisioning"},
		"NotBound":      {reason: "volumes are bound once a host is selected", status: "WaitingForVolumeBinding", phase: "Creating", why: "Provisioning"},
		"New":           {reason: "KubeVirt has not reconciled it yet", phase: "Creating", why: "Provisioning"},
		"Full":          {reason: "no host has room", status: "ErrorUnschedulable", detail: "3 Insufficient memory", phase: "Creating", why: "InsufficientResources", failed: true},
		"NoVolume":      {reason: "a volume is missing, not a host", status: "ErrorUnschedulable", detail: unbound, phase: "Creating", why: "Provisioning"},
		"DiskGone":      {reason: "a user deleted the volume", status: "ErrorPvcNotFound", before: "Running", phase: "Running", why: "DiskNotFound", failed: true},
		"Import":        {reason: "the image cannot be read", status: "DataVolumeError", phase: "Creating", why: "ImageImportFailed", failed: true},
		"Pull":          {reason: "the registry does not answer", status: "ImagePullBackOff", phase: "Creating", why: "ImagePullFailed", failed: true},
		"CrashLoop":     {reason: "it crashes repeatedly", status: "CrashLoopBackOff", before: "Running", phase: "Running", why: "CrashLoop", failed: true},
		"Unknown":       {reason: "an unknown state keeps the last phase", status: "Unknown", before: "Running", phase: "Running", why: "Starting"},
		"StaysOff":      {reason: "an unknown state keeps it stopped", status: "Unknown", before: "Stopped", power: "Stopped", phase: "Stopped", why: "Starting"},
		"StartsFromOff": {reason: "spec.powerState is Running", status: "Starting", before: "Stopped", phase: "Creating", why: "Starting"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vm := &kubevirtv1.VirtualMachine{Status: kubevirtv1.VirtualMachineStatus{PrintableStatus: tc.status}}
			if tc.detail != "" {
				vm.Status.Conditions = []kubevirtv1.VirtualMachineCondition{{Type: "PodScheduled", Status: corev1.ConditionFalse, Message: tc.detail}}
			}
			s := vmState(vm, tc.before, tc.power)
			if s.Phase != tc.phase || s.Reason != tc.why || s.Failed != tc.failed || !strings.Contains(s.Message, tc.detail) {
				t.Errorf("%s: got %+v", tc.reason, s)
			}
		})
	}
}

func TestConditionMessage(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		condition kubevirtv1.VirtualMachineCondition
		want      string
	}{
		"Failure":     {"KubeVirt cannot create the instance", kubevirtv1.VirtualMachineCondition{Type: kubevirtv1.VirtualMachineFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}, " (exceeded quota)"},
		"Unscheduled": {"no host accepts its pod", kubevirtv1.VirtualMachineCondition{Type: "PodScheduled", Status: corev1.ConditionFalse, Message: "Insufficient memory"}, " (Insufficient memory)"},
		"Unable":      {"the host cannot start the domain", kubevirtv1.VirtualMachineCondition{Type: "Synchronized", Status: corev1.ConditionFalse, Message: "command SyncVMI failed"}, " (command SyncVMI failed)"},
		"Able":        {"all conditions are good", kubevirtv1.VirtualMachineCondition{Type: "Synchronized", Status: corev1.ConditionTrue, Message: "fine"}, ""},
	}
	for name, tc := range cases {
		vm := &kubevirtv1.VirtualMachine{Status: kubevirtv1.VirtualMachineStatus{
			PrintableStatus: kubevirtv1.VirtualMachineStatusStarting, Conditions: []kubevirtv1.VirtualMachineCondition{tc.condition},
		}}
		s := vmState(vm, v1alpha1.MachineCreating, v1alpha1.PowerRunning)
		if want := "waiting for the virtual machine to start" + tc.want; s.Message != want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, s.Message, want)
		}
	}
}

func TestResolveClass(t *testing.T) {
	t.Parallel()
	class := func(name, isDefault string) storagev1.StorageClass {
		return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{isDefaultClass: isDefault}}}
	}
	both := []storagev1.StorageClass{class("standard", "false"), class("fast", "true")}
	for name, tc := range map[string]struct {
		reason         string
		classes        []storagev1.StorageClass
		disk, provider string
		want, message  string
	}{
		"Disk":      {reason: "the disk names one", classes: both, disk: "standard", provider: "fast", want: "standard"},
		"Provider":  {reason: "the MachineProvider names one", classes: both, provider: "standard", want: "standard"},
		"Default":   {reason: "the cluster has a default", classes: both, want: "fast"},
		"Unknown":   {reason: "it does not exist", classes: both, disk: "slow", message: "StorageClass slow does not exist: create it, or name one of fast, standard"},
		"NoneNamed": {reason: "it does not exist, and no other does", disk: "slow", message: "StorageClass slow does not exist: create it"},
		"NoDefault": {
			reason: "none is the default", classes: both[:1],
			message: "mark one with the annotation storageclass.kubernetes.io/is-default-class=true, or name one of standard in the disk",
		},
		"NoneExists": {reason: "none exists", message: "the cluster of KubeVirt has no StorageClass: create one with the annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := resolveClass(tc.classes, tc.disk, tc.provider)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if got != tc.want || !strings.Contains(message, tc.message) || (tc.message == "") != (err == nil) {
				t.Errorf("%s: got %q and %q, want %q and %q", tc.reason, got, message, tc.want, tc.message)
			}
		})
	}
}

func TestWithMissing(t *testing.T) {
	t.Parallel()
	named := func(name string) corev1.PersistentVolumeClaim {
		return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	}
	vm := &kubevirtv1.VirtualMachine{Spec: kubevirtv1.VirtualMachineSpec{DataVolumeTemplates: []kubevirtv1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "vm-root"}}}}}
	for name, tc := range map[string]struct {
		reason string
		claims []corev1.PersistentVolumeClaim
		want   string
	}{
		"NotCreated": {"CDI has not created the claim of the image yet", []corev1.PersistentVolumeClaim{named("vm-data")}, "waiting for a volume for vm-root"},
		"Bound":      {"every disk has its volume", []corev1.PersistentVolumeClaim{named("vm-data"), named("vm-root")}, ""},
	} {
		if got := pendingClaims(withMissing(tc.claims, vm)); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}

func TestPendingSize(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason              string
		sockets             uint32
		memory              string
		migrating, isSilent bool
		want                string
	}{
		"Same":      {reason: "the guest has everything", sockets: 1, memory: "2Gi"},
		"OtherUnit": {reason: "2048Mi are 2Gi", sockets: 1, memory: "2048Mi"},
		"Sockets":   {reason: "sockets wait for a live migration", sockets: 2, memory: "2Gi", want: "the machine gets 2 sockets instead of 1 by"},
		"Memory":    {reason: "memory waits for a live migration", sockets: 1, memory: "4Gi", want: "the machine gets 4Gi of memory instead of 2Gi by"},
		"Both":      {reason: "both wait", sockets: 2, memory: "4Gi", want: "2 sockets instead of 1 and 4Gi of memory instead of 2Gi by"},
		"Migrating": {reason: "KubeVirt migrates the machine", sockets: 2, memory: "4Gi", migrating: true},
		"Silent":    {reason: "KubeVirt before 1.0 does not report what the guest has", sockets: 2, memory: "4Gi", isSilent: true},
	} {
		has, memory := resource.MustParse("2Gi"), resource.MustParse(tc.memory)
		vm := &kubevirtv1.VirtualMachine{Spec: kubevirtv1.VirtualMachineSpec{Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{}}}
		vm.Spec.Template.Spec.Domain.CPU = &kubevirtv1.CPU{Sockets: tc.sockets}
		vm.Spec.Template.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
		vmi := &kubevirtv1.VirtualMachineInstance{}
		if !tc.isSilent {
			vmi.Status.CurrentCPUTopology = &kubevirtv1.CPUTopology{Sockets: 1}
			vmi.Status.Memory = &kubevirtv1.MemoryStatus{GuestCurrent: &has, GuestRequested: &has}
		}
		if tc.migrating {
			vmi.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{}
		}
		if got := pendingSize(vm, vmi); !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}

package kubevirt_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/kubevirt"
)

// manifest returns a machine m in network vlan200, with claim m-root, static network data, and the
// objects that it needs.
func manifest(edits ...string) string {
	text := claimManifest + "---\n" + networkManifest + "---\n" + machineManifest
	return strings.NewReplacer(edits...).Replace(text)
}

const claimManifest = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: m-root}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: fast-ssd
  resources: {requests: {storage: 20Gi}}
`

const networkManifest = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan200}
spec: {config: '{"cniVersion":"1.0.0","type":"bridge"}'}
`

const machineManifest = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: m, labels: {vitistack.io/machine: m}}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {vitistack.io/machine: m}}
    spec:
      domain:
        cpu: {cores: 2, sockets: 1, threads: 1}
        memory: {guest: 4Gi}
        devices:
          disks:
          - {name: root, disk: {bus: virtio}}
          - {name: cloudinitdisk, disk: {bus: virtio}}
          interfaces:
          - {name: nic0, model: virtio, macAddress: "02:00:00:00:00:01", bridge: {}}
      networks:
      - {name: nic0, multus: {networkName: vlan200}}
      volumes:
      - {name: root, persistentVolumeClaim: {claimName: m-root}}
      - name: cloudinitdisk
        cloudInitNoCloud:
          userData: "#cloud-config"
          networkData: |
            version: 2
            ethernets:
              nic0:
                match: {macaddress: "02:00:00:00:00:01"}
                addresses: [192.168.10.21/24]
                gateway4: 192.168.10.1
`

func isRunning(vmi *virtv1.VirtualMachineInstance) bool { return vmi.Status.Phase == virtv1.Running }

// follow records the values of a field of an object. The returned function waits until the last values
// are the given ones, and returns all of them.
func (c *cluster) follow(r schema.GroupVersionResource, name string, path ...string) func(last ...string) []string {
	c.t.Helper()
	w, err := c.in(r).Watch(c.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		c.t.Fatal(err)
	}
	return func(last ...string) []string {
		c.t.Helper()
		defer w.Stop()
		var seen []string
		late := time.After(patience)
		for len(seen) < len(last) || !slices.Equal(seen[len(seen)-len(last):], last) {
			select {
			case e := <-w.ResultChan():
				o, ok := e.Object.(*unstructured.Unstructured)
				if !ok {
					c.t.Fatalf("the watch of %s %s sent %v", r.Resource, name, e)
				}
				v, _, _ := unstructured.NestedString(o.Object, path...)
				if len(seen) == 0 || seen[len(seen)-1] != v {
					seen = append(seen, v)
				}
			case <-late:
				c.t.Fatalf("%s %s went through %q, and never reached %s", r.Resource, name, seen, last)
			}
		}
		return seen
	}
}

func TestMachineGoesThroughThePhases(t *testing.T) {
	t.Parallel()
	const step = 300 * time.Millisecond
	c := start(t, kubevirt.Options{Times: kubevirt.Times{
		Provisioning: 15 * time.Second, // on a busy machine, too, the instance exists before the volume
		Scheduling:   step, Starting: step, Booting: step, Stopping: step,
	}})
	printable := c.follow(vms, "m", "status", "printableStatus")
	phases := c.follow(vmis, "m", "status", "phase")
	c.apply(manifest())
	vmi := c.vmi("m", "its agent answers", func(vmi *virtv1.VirtualMachineInstance) bool {
		return len(vmi.Status.Interfaces) == 1 && vmi.Status.Interfaces[0].IP != ""
	})
	c.patch(vms, "m", `{"spec":{"runStrategy":"Halted"}}`)
	c.status("m", virtv1.VirtualMachineStatusStopped)
	c.delete(vms, "m")
	c.gone(vms, "m")

	// A claim of an immediately binding class keeps the pod unschedulable until then. Before virt-controller has created the
	// instance, it reports the machine without one, and it may not have seen the claim yet.
	seen := printable("Stopping", "Stopped")
	first := max(0, slices.Index(seen, "ErrorUnschedulable"))
	for _, state := range seen[:first] {
		if !contains([]string{"", "Stopped", "WaitingForVolumeBinding"}, state) {
			t.Errorf("the machine was %s before its instance existed", state)
		}
	}
	if diff := cmp.Diff([]string{"ErrorUnschedulable", "Starting", "Running", "Stopping", "Stopped"}, seen[first:]); diff != "" {
		t.Errorf("printable states (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Pending", "Scheduling", "Scheduled", "Running"}, phases("Running")); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if vmi.Status.NodeName == "" || len(vmi.Status.ActivePods) != 1 {
		t.Errorf("a running instance has node %q and pods %v", vmi.Status.NodeName, vmi.Status.ActivePods)
	}
}

func TestMachineIsCompletedAndReported(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(manifest())
	vm := c.vm("m", "it is ready, which is reported after it runs", func(vm *virtv1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == virtv1.VirtualMachineStatusRunning && vm.Status.Ready
	})
	vmi := c.vmi("m", "it runs", isRunning)

	spec := vm.Spec.Template.Spec
	if spec.Architecture != "amd64" || spec.Domain.Machine.Type != "q35" || spec.Domain.Firmware.UUID == "" {
		t.Errorf("defaults are not filled in: %s, %v, %v", spec.Architecture, spec.Domain.Machine, spec.Domain.Firmware)
	}
	if !slices.Contains(vm.Finalizers, "kubevirt.io/virtualMachineControllerFinalize") {
		t.Errorf("machine has finalizers %v", vm.Finalizers)
	}
	if !vm.Status.Created || !vm.Status.Ready || vm.Status.RunStrategy != virtv1.RunStrategyAlways {
		t.Errorf("machine is created %v, ready %v, strategy %s", vm.Status.Created, vm.Status.Ready, vm.Status.RunStrategy)
	}
	if owner := metav1.GetControllerOf(vmi); owner == nil || owner.UID != vm.UID {
		t.Errorf("instance is owned by %v, want the machine", owner)
	}
	if vmi.Labels["vitistack.io/machine"] != "m" || vmi.Labels["kubevirt.io/nodeName"] != vmi.Status.NodeName {
		t.Errorf("instance has labels %v", vmi.Labels)
	}
	conditions := map[string]string{}
	for _, cond := range vm.Status.Conditions {
		conditions[string(cond.Type)] = string(cond.Status)
	}
	want := map[string]string{"Ready": "True", "LiveMigratable": "False", "StorageLiveMigratable": "True", "AgentConnected": "True"}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("conditions of the machine (-want +got):\n%s", diff)
	}
	guest, on := c.guests.named("m")
	if !on || guest.ID != string(spec.Domain.Firmware.UUID) || guest.UserData != "#cloud-config" || guest.CPUs != 2 || guest.Memory != 4<<30 {
		t.Errorf("guest is on %v: %+v", on, guest)
	}
	if len(guest.Disks) != 2 || guest.Disks[0].Claim != "m-root" || guest.Disks[0].Bytes != 20<<30 || guest.Image != "" {
		t.Errorf("guest has disks %+v and image %q", guest.Disks, guest.Image)
	}
}

func TestRunStrategies(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(manifest("runStrategy: Always", "runStrategy: Halted"))
	c.status("m", virtv1.VirtualMachineStatusStopped)
	if vmi := get[virtv1.VirtualMachineInstance](c, vmis, "m"); vmi != nil {
		t.Fatal("a halted machine has an instance")
	}

	c.patch(vms, "m", `{"spec":{"runStrategy":"Manual"}}`)
	c.patch(vms, "m", `{"status":{"stateChangeRequests":[{"action":"Start"}]}}`, "status")
	c.status("m", virtv1.VirtualMachineStatusRunning)
	first := c.vmi("m", "it runs", isRunning)
	c.vm("m", "its request is done", func(vm *virtv1.VirtualMachine) bool { return len(vm.Status.StateChangeRequests) == 0 })
	c.patch(vms, "m", `{"status":{"stateChangeRequests":[{"action":"Stop","uid":"`+string(first.UID)+`"}]}}`, "status")
	c.status("m", virtv1.VirtualMachineStatusStopped)
	if _, on := c.guests.named("m"); on {
		t.Error("the guest of a stopped machine runs")
	}

	c.patch(vms, "m", `{"spec":{"runStrategy":"Always"}}`)
	before := c.vmi("m", "it runs", isRunning)
	c.delete(vmis, "m")
	after := c.vmi("m", "another instance runs", func(vmi *virtv1.VirtualMachineInstance) bool {
		return isRunning(vmi) && vmi.UID != before.UID
	})
	if before.Spec.Domain.Firmware.UUID != after.Spec.Domain.Firmware.UUID {
		t.Error("a restart changed the firmware's UUID")
	}

	c.patch(vms, "m", `{"spec":{"runStrategy":null,"running":false}}`)
	c.status("m", virtv1.VirtualMachineStatusStopped)
	c.patch(vms, "m", `{"spec":{"running":true}}`)
	c.status("m", virtv1.VirtualMachineStatusRunning)
	c.patch(vms, "m", `{"spec":{"running":null,"runStrategy":"Once"}}`)
	c.delete(vmis, "m")
	c.vmi("m", "Once starts it again", isRunning)
}

func TestDeletionLeavesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(manifest())
	vm := c.status("m", virtv1.VirtualMachineStatusRunning)
	id := string(vm.Spec.Template.Spec.Domain.Firmware.UUID)

	c.delete(pvcs, "m-root")
	if claim := get[corev1.PersistentVolumeClaim](c, pvcs, "m-root"); claim == nil {
		t.Fatal("a claim that a running instance uses was deleted")
	}
	c.delete(vms, "m")
	c.gone(vms, "m")
	c.gone(vmis, "m")
	c.gone(pvcs, "m-root")
	eventually(c, pvs, "none", "no volume is left", func(*corev1.PersistentVolume) bool { return len(c.volumesLeft()) == 0 })
	if _, on := c.guests.named("m"); on || !c.guests.isDestroyed(id) {
		t.Errorf("guest %s: runs %v, destroyed %v, want it stopped and destroyed", id, on, c.guests.isDestroyed(id))
	}
}

func TestInstanceWithoutMachine(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: alone}
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {disks: [{name: boot, disk: {}}]}
  volumes: [{name: boot, containerDisk: {image: "quay.io/example/disk:1"}}]
`)
	vmi := c.vmi("alone", "it runs", isRunning)
	guest, on := c.guests.named("alone")
	if !on || guest.Image != "quay.io/example/disk:1" {
		t.Errorf("guest runs %v with image %q", on, guest.Image)
	}
	if got := vmi.Status.Interfaces; len(got) != 1 || got[0].IP == "" || got[0].Name != "default" {
		t.Errorf("interfaces are %+v, want one on the pod network with an address", got)
	}
	c.delete(vmis, "alone")
	c.gone(vmis, "alone")
	if !c.guests.isDestroyed(guest.ID) {
		t.Error("the guest of a deleted instance is not destroyed")
	}
}

func TestRestartRequired(t *testing.T) {
	t.Parallel()
	onlySimulated(t, "it hotplugs by a live migration, which needs two launchers")
	c := start(t, kubevirt.Options{LiveMigrate: true})
	c.apply(manifest("ReadWriteOnce", "ReadWriteMany"))
	first := c.vmi("m", "it runs", isRunning)
	requiresRestart := func(vm *virtv1.VirtualMachine) string {
		for _, cond := range vm.Status.Conditions {
			if cond.Type == virtv1.VirtualMachineRestartRequired {
				return cond.Message
			}
		}
		return ""
	}

	c.patch(vms, "m", `{"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":2},"memory":{"guest":"8Gi"}}}}}}`)
	c.vmi("m", "sockets and memory were hotplugged", func(vmi *virtv1.VirtualMachineInstance) bool {
		return vmi.UID == first.UID && vmi.Status.CurrentCPUTopology.Sockets == 2 && vmi.Status.Memory.GuestCurrent.String() == "8Gi"
	})
	c.patch(vms, "m", `{"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":9}}}}}}`)
	c.vm("m", "more sockets than the maximum require a restart", func(vm *virtv1.VirtualMachine) bool {
		return requiresRestart(vm) == "CPU sockets updated in template spec to a value higher than what's available"
	})
	c.patch(vms, "m", `{"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":2,"cores":4}}}}}}`)
	c.vm("m", "a change of cores requires a restart", func(vm *virtv1.VirtualMachine) bool {
		return requiresRestart(vm) == "a non-live-updatable field was changed in the template spec"
	})
	c.delete(vmis, "m")
	c.vmi("m", "it has the cores", func(vmi *virtv1.VirtualMachineInstance) bool {
		return isRunning(vmi) && vmi.Spec.Domain.CPU.Cores == 4
	})
	c.vm("m", "no change is pending", func(vm *virtv1.VirtualMachine) bool { return requiresRestart(vm) == "" })
}

// TestHotplugWaitsForMigration changes sockets and memory of an instance that KubeVirt does not migrate. No condition of the
// machine reports that they wait.
func TestHotplugWaitsForMigration(t *testing.T) {
	t.Parallel()
	c := start(t, kubevirt.Options{})
	c.apply(manifest("ReadWriteOnce", "ReadWriteMany"))
	first := c.vmi("m", "it runs", isRunning)
	c.patch(vms, "m", `{"spec":{"template":{"spec":{"domain":{"cpu":{"sockets":2},"memory":{"guest":"8Gi"}}}}}}`)
	waiting := func(vmi *virtv1.VirtualMachineInstance, kind virtv1.VirtualMachineInstanceConditionType) bool {
		return slices.ContainsFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue
		})
	}
	vmi := c.vmi("m", "both changes wait for a migration", func(vmi *virtv1.VirtualMachineInstance) bool {
		return waiting(vmi, virtv1.VirtualMachineInstanceVCPUChange) && waiting(vmi, virtv1.VirtualMachineInstanceMemoryChange)
	})
	if vmi.UID != first.UID || vmi.Spec.Domain.CPU.Sockets != 2 || vmi.Spec.Domain.Memory.Guest.String() != "8Gi" {
		t.Errorf("the instance %s has %+v", vmi.UID, vmi.Spec.Domain)
	}
	if vmi.Status.CurrentCPUTopology.Sockets != 1 || !vmi.Status.Memory.GuestRequested.Equal(*first.Status.Memory.GuestRequested) {
		t.Errorf("the guest has got %+v and %+v without a migration", vmi.Status.CurrentCPUTopology, vmi.Status.Memory)
	}
	c.vm("m", "no condition says that it waits", func(vm *virtv1.VirtualMachine) bool {
		return !slices.ContainsFunc(vm.Status.Conditions, func(c virtv1.VirtualMachineCondition) bool { return c.Type == virtv1.VirtualMachineRestartRequired })
	})
}

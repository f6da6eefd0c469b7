package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// leaseRetry is how long a guest without a lease waits before it retries.
const leaseRetry = time.Second

// secretRetry is how long a pod without one of its Secrets waits.
const secretRetry = time.Second

// instance reconciles an instance, and writes its state once: steps without a duration are one write.
func (v *visit) instance(ctx context.Context) error {
	if v.vmi == nil {
		return nil
	}
	next := v.vmi.DeepCopy()
	stepErr := v.advance(ctx, next)
	written, err := v.api.vmis.patch(ctx, v.vmi, next)
	if apierrors.IsNotFound(err) {
		v.vmi = nil
		return nil
	}
	if err != nil {
		return errors.Join(stepErr, err)
	}
	v.vmi = written
	if written.DeletionTimestamp != nil && len(written.Finalizers) == 0 {
		v.vmi = nil
	}
	return stepErr
}

// advance changes vmi as its controllers would, phase by phase.
func (v *visit) advance(ctx context.Context, vmi *virtv1.VirtualMachineInstance) error {
	if vmi.DeletionTimestamp != nil {
		return v.end(vmi)
	}
	if vmi.IsFinal() {
		v.hosts.release(vmi.UID)
		return v.power.switchOff(vmi)
	}
	if vmi.Status.Phase == virtv1.VmPhaseUnset {
		enterPending(vmi, metav1.NewTime(v.now))
	}
	if !vmi.IsScheduled() && !vmi.IsRunning() {
		if bound, err := v.schedule(ctx, vmi); !bound || err != nil {
			return err
		}
	}
	reported := vmi.IsRunning()
	if !reported {
		if running, err := v.boot(ctx, vmi); !running || err != nil {
			return err
		}
	}
	if err := v.keepRunning(ctx, vmi); err != nil {
		return err
	}
	if reported {
		describePod(vmi, v.storage(vmi.Namespace, vmi.Spec.Volumes), metav1.NewTime(v.now))
	}
	return nil
}

// schedule moves an instance from Pending to Scheduled, and reports whether it is there.
func (v *visit) schedule(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (bool, error) {
	now := metav1.NewTime(v.now)
	storage := v.storage(vmi.Namespace, vmi.Spec.Volumes)
	if c := dataVolumesReady(storage); c != nil {
		setCondition(vmi, *c, now)
	}
	if nodeOf(vmi) == "" {
		if placed, err := v.findNode(ctx, vmi, storage); !placed || err != nil {
			return false, err
		}
	}
	if pending, err := v.claimVolumes(ctx, vmi, storage); pending || err != nil {
		return false, err
	}
	if started, err := v.startPod(ctx, vmi); !started || err != nil {
		return false, err
	}
	unblock(vmi)
	handOver(vmi, now)
	return true, nil
}

// findNode binds the instance's pod to a node, once its volumes, networks and Secrets exist.
func (v *visit) findNode(ctx context.Context, vmi *virtv1.VirtualMachineInstance, storage storageView) (bool, error) {
	now := metav1.NewTime(v.now)
	if o := v.obstacle(vmi, storage); o != nil {
		block(vmi, *o, now)
		if !o.quiet {
			v.events.warn(ctx, "virtualmachine-controller", referenceTo(vmi, "VirtualMachineInstance"), o.reason, o.message)
		}
		return false, nil
	}
	fault, isDue := v.takeStep(step{vmi.UID, opSchedule}, v.options.Times.Scheduling)
	if !isDue {
		return false, nil
	}
	if text, failed := fault.Before(); failed {
		block(vmi, unschedulableBy(text), now)
		return false, injected(opSchedule, text)
	}
	place, why := v.hosts.assign(vmi, v.api.listNodes(), v.api.listInstances())
	if why != "" {
		block(vmi, unschedulableBy(why), now)
		return false, nil
	}
	bind(vmi, place.node, now)
	return true, nil
}

func unschedulableBy(why string) obstacle {
	return obstacle{reason: corev1.PodReasonUnschedulable, message: why, unschedulable: true}
}

// obstacle returns what keeps the instance's pod from being created, or nil.
func (v *visit) obstacle(vmi *virtv1.VirtualMachineInstance, storage storageView) *obstacle {
	if o := storageObstacle(vmi, storage); o != nil {
		return o
	}
	return v.unboundClaims(storage)
}

// unboundClaims returns that a pod waits for the volume of a claim which is bound before a pod needs it, or nil.
func (v *visit) unboundClaims(storage storageView) *obstacle {
	for _, c := range storage.claims {
		if c.Status.Phase != corev1.ClaimBound && !v.waitsForConsumer(c) {
			nodes := len(v.api.listNodes())
			why := unschedulableBy(fmt.Sprintf("0/%d nodes are available: pod has unbound immediate PersistentVolumeClaims. "+
				"preemption: 0/%d nodes are available: %d Preemption is not helpful for scheduling.", nodes, nodes, nodes))
			return &why
		}
	}
	return nil
}

// claimVolumes sets the selected node of the claims that wait for a consumer, and reports whether a
// claim has no volume yet.
func (v *visit) claimVolumes(ctx context.Context, vmi *virtv1.VirtualMachineInstance, storage storageView) (pending bool, err error) {
	return v.selectNode(ctx, storage, nodeOf(vmi))
}

// selectNode is claimVolumes for a node.
func (v *visit) selectNode(ctx context.Context, storage storageView, node string) (pending bool, err error) {
	for _, c := range storage.claims {
		if c.Status.Phase == corev1.ClaimBound {
			continue
		}
		pending = true
		if c.Annotations[annotationSelectedNode] != "" {
			continue
		}
		selected := c.DeepCopy()
		if selected.Annotations == nil {
			selected.Annotations = map[string]string{}
		}
		selected.Annotations[annotationSelectedNode] = node
		if _, err := v.api.claims.patch(ctx, c, selected); err != nil {
			return true, err
		}
	}
	return pending, nil
}

// boot moves an instance from Scheduled to Running, and reports whether it is there.
func (v *visit) boot(ctx context.Context, vmi *virtv1.VirtualMachineInstance) (bool, error) {
	now := metav1.NewTime(v.now)
	step := step{vmi.UID, opRun}
	left, fault := v.pace.wait(step, v.options.Times.Starting)
	if left > 0 {
		v.lookAgain(left)
		return false, nil
	}
	if text, failed := fault.Before(); failed {
		v.pace.done(step)
		v.crash(ctx, vmi, text)
		return false, nil
	}
	if err := v.powerOn(ctx, vmi); err != nil {
		block(vmi, obstacle{
			reason:  reasonDomainSync,
			message: fmt.Sprintf("server error. command SyncVMI failed: %q", err.Error()),
		}, now)
		return false, err
	}
	v.pace.done(step)
	unblock(vmi)
	enterPhase(vmi, virtv1.Running, now)
	vmi.Status.Machine = &virtv1.Machine{Type: machineOf(vmi)}
	if text, crashes := fault.Lost(); crashes {
		v.crash(ctx, vmi, text)
		return false, v.power.switchOff(vmi)
	}
	v.pause(vmi)
	return true, nil
}

// crash ends an instance whose process is gone.
func (v *visit) crash(ctx context.Context, vmi *virtv1.VirtualMachineInstance, why string) {
	v.events.warn(ctx, "virt-handler", referenceTo(vmi, "VirtualMachineInstance"),
		virtv1.Stopped.String(), "The VirtualMachineInstance crashed: "+why)
	fail(vmi, metav1.NewTime(v.now))
	v.hosts.release(vmi.UID)
}

// machineOf returns the machine type that libvirt resolves a general one to.
func machineOf(vmi *virtv1.VirtualMachineInstance) string {
	if t := vmi.Spec.Domain.Machine.Type; t != "q35" {
		return t
	}
	return "pc-q35-rhel9.6.0"
}

// pause stops the guest's CPUs if the plan says so.
func (v *visit) pause(vmi *virtv1.VirtualMachineInstance) {
	step := step{vmi.UID, opPause}
	_, fault := v.pace.wait(step, 0)
	v.pace.done(step)
	text, paused := fault.Before()
	if !paused {
		return
	}
	reason, message := "PausedIOError", "VMI was paused, low-level IO error detected"
	if strings.HasPrefix(text, "PausedByUser") {
		reason, message = "PausedByUser", "VMI was paused by user"
	}
	setCondition(vmi, virtv1.VirtualMachineInstanceCondition{
		Type: virtv1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	}, metav1.NewTime(v.now))
}

// keepRunning updates the status of a running instance, and keeps its guest running.
func (v *visit) keepRunning(ctx context.Context, vmi *virtv1.VirtualMachineInstance) error {
	if _, on := v.power.settings(vmi); !on {
		if err := v.powerOn(ctx, vmi); err != nil {
			return err
		}
	}
	settings, _ := v.power.settings(vmi)
	if settings.waiting {
		if err := v.renew(vmi, &settings); err != nil {
			return err
		}
	}
	agent := v.agentUp(vmi)
	describeGuest(vmi, v.storage(vmi.Namespace, vmi.Spec.Volumes), settings.guest.NICs, agent, metav1.NewTime(v.now))
	return nil
}

// agentUp reports whether the guest has booted and its agent answers. It is never true for a guest
// whose boot fails by a fault.
func (v *visit) agentUp(vmi *virtv1.VirtualMachineInstance) bool {
	if vmi.Annotations[AgentAnnotation] == "false" {
		return false
	}
	if condition(vmi, virtv1.VirtualMachineInstanceAgentConnected) != nil {
		return true
	}
	left, fault := v.pace.wait(step{vmi.UID, opBoot}, v.options.Times.Booting)
	v.lookAgain(left)
	_, failed := fault.Before()
	return left == 0 && !failed
}

// describePod writes what virt-controller writes about an instance once virt-handler has reported that it runs.
func describePod(vmi *virtv1.VirtualMachineInstance, storage storageView, now metav1.Time) {
	vmi.Status.VolumeStatus = volumeStatuses(vmi, storage)
	setCondition(vmi, virtv1.VirtualMachineInstanceCondition{
		Type: virtv1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue,
	}, now)
	if c := dataVolumesReady(storage); c != nil {
		setCondition(vmi, *c, now)
	}
}

// describeGuest writes what virt-handler writes about a running instance.
func describeGuest(vmi *virtv1.VirtualMachineInstance, storage storageView, nics []NIC, agent bool, now metav1.Time) {
	vmi.Status.Interfaces = interfaceStatus(vmi, nics, agent)
	live, method := migratable(vmi, storage)
	setCondition(vmi, live, now)
	vmi.Status.MigrationMethod = method
	setCondition(vmi, virtv1.VirtualMachineInstanceCondition{
		Type: virtv1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionTrue,
	}, now)
	if agent {
		setCondition(vmi, virtv1.VirtualMachineInstanceCondition{
			Type: virtv1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue,
		}, now)
	}
}

// end stops the guest of an instance that is being deleted, and removes its finalizer.
func (v *visit) end(vmi *virtv1.VirtualMachineInstance) error {
	if stopped, err := v.stopGuest(vmi); !stopped || err != nil {
		return err
	}
	v.hosts.release(vmi.UID)
	release(vmi, metav1.NewTime(v.now))
	return nil
}

// stopGuest stops the guest of an instance that is being deleted, and reports whether it is off. The disks of an instance
// without a machine go with it.
func (v *visit) stopGuest(vmi *virtv1.VirtualMachineInstance) (stopped bool, err error) {
	if nodeOf(vmi) != "" && !vmi.IsFinal() {
		fault, isDue := v.takeStep(step{vmi.UID, opStop}, v.options.Times.Stopping)
		if !isDue {
			return false, nil
		}
		if text, failed := fault.Before(); failed {
			return false, injected(opStop, text)
		}
	}
	if err := v.power.switchOff(vmi); err != nil {
		return false, fmt.Errorf("switch off the guest of %s/%s: %w", vmi.Namespace, vmi.Name, err)
	}
	if metav1.GetControllerOf(vmi) == nil && slices.Contains(vmi.Finalizers, virtv1.VirtualMachineInstanceFinalizer) {
		if err := v.options.Guests.Destroy(guestID(vmi)); err != nil {
			return false, fmt.Errorf("destroy the guest of %s/%s: %w", vmi.Namespace, vmi.Name, err)
		}
	}
	return true, nil
}

// powerOn starts the guest with its settings in the cluster.
func (v *visit) powerOn(ctx context.Context, vmi *virtv1.VirtualMachineInstance) error {
	data, err := v.bootData(ctx, vmi)
	if err != nil {
		return err
	}
	settings := guestSettings{network: data.network}
	if usesPodNetwork(vmi) {
		settings.pod = v.podAddress(vmi)
	}
	settings.guest = v.guest(vmi, data)
	if settings.guest.Memory <= 0 {
		return errors.New("XML error: memory size must be specified via <memory> or in the <numa> configuration")
	}
	settings.guest.NICs, settings.waiting = nics(vmi, settings.pod, settings.network, v.options.DHCP)
	if settings.waiting {
		v.lookAgain(leaseRetry)
	}
	return v.power.switchOn(vmi, settings)
}

// renew requests the missing leases of a guest again, and passes a new lease to the guest.
func (v *visit) renew(vmi *virtv1.VirtualMachineInstance, settings *guestSettings) error {
	before := settings.guest.NICs
	settings.guest.NICs, settings.waiting = nics(vmi, settings.pod, settings.network, v.options.DHCP)
	if settings.waiting {
		v.lookAgain(leaseRetry)
	}
	if slices.EqualFunc(before, settings.guest.NICs, func(a, b NIC) bool { return slices.Equal(a.Addresses, b.Addresses) }) {
		return nil
	}
	return v.power.switchOn(vmi, *settings)
}

// podAddress returns the address in the status, or else a free one.
func (v *visit) podAddress(vmi *virtv1.VirtualMachineInstance) netip.Prefix {
	bits := v.options.PodNetwork.Bits()
	for _, i := range vmi.Status.Interfaces {
		if a, err := netip.ParseAddr(i.IP); err == nil && v.options.PodNetwork.Contains(a) && i.PodInterfaceName == "eth0" {
			return netip.PrefixFrom(a, bits)
		}
	}
	place, why := v.hosts.assign(vmi, v.api.listNodes(), v.api.listInstances())
	if why != "" || !place.address.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(place.address, bits)
}

func usesPodNetwork(vmi *virtv1.VirtualMachineInstance) bool {
	return slices.ContainsFunc(vmi.Spec.Networks, func(n virtv1.Network) bool { return n.Pod != nil })
}

package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
)

// runPods acts as the scheduler, the kubelet and virt-handler do for the pods of an instance, which the
// real virt-controller creates and deletes.
func (v *visit) runPods(ctx context.Context, namespace, name string) error {
	var errs []error
	for _, pod := range v.podsOf(namespace, name) {
		if pod.DeletionTimestamp != nil {
			errs = append(errs, v.endPod(ctx, pod))
			continue
		}
		if v.vmi != nil && metav1.IsControlledBy(pod, v.vmi) {
			errs = append(errs, v.runPod(ctx, pod))
		}
	}
	if v.vmi != nil {
		errs = append(errs, v.handle(ctx))
	}
	return errors.Join(errs...)
}

// podsOf returns the pods of an instance, the oldest first.
func (v *visit) podsOf(namespace, name string) []*corev1.Pod {
	var all []*corev1.Pod
	v.api.pods.cache.each(namespace, func(p *corev1.Pod) {
		if p.Annotations[virtv1.DomainAnnotation] == name {
			all = append(all, p)
		}
	})
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return all
}

// runPod schedules a pod, and starts its containers. Both are one step each, so that a simulator that
// starts again continues.
func (v *visit) runPod(ctx context.Context, pod *corev1.Pod) error {
	switch {
	case pod.Spec.NodeName == "":
		return v.schedulePod(ctx, pod)
	case pod.Status.Phase != corev1.PodPending || v.vmi.IsFinal():
		return nil
	}
	if started, err := v.startPod(ctx, v.vmi); !started || err != nil {
		return err
	}
	attached, err := attach(pod)
	if err != nil {
		return err
	}
	if pod, err = v.api.pods.patch(ctx, pod, attached); err != nil {
		return err
	}
	return v.patchPod(ctx, pod, corev1.PodRunning)
}

// Annotations of pods with the networks to attach, and with the networks that Multus has attached.
const (
	annotationNetworks      = "k8s.v1.cni.cncf.io/networks"
	annotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"
)

// attach returns a pod with the networks that it requests attached, as Multus reports them. virt-controller reports no interface
// of an instance that lacks them.
func attach(pod *corev1.Pod) (*corev1.Pod, error) {
	type network struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace,omitempty"`
		Interface string `json:"interface"`
		MAC       string `json:"mac,omitempty"`
		Default   bool   `json:"default,omitempty"`
	}
	attached := []network{{Name: "pod", Interface: "eth0", Default: true}}
	if text := pod.Annotations[annotationNetworks]; text != "" {
		var requested []network
		if err := json.Unmarshal([]byte(text), &requested); err != nil {
			return nil, fmt.Errorf("read the networks of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		for _, n := range requested {
			attached = append(attached, network{Name: n.Namespace + "/" + n.Name, Interface: n.Interface, MAC: n.MAC})
		}
	}
	text, err := json.Marshal(attached)
	if err != nil {
		return nil, err
	}
	after := pod.DeepCopy()
	after.Annotations[annotationNetworkStatus] = string(text)
	return after, nil
}

// schedulePod binds a pod to a node, once its claims have volumes. Otherwise it writes the condition that
// the scheduler writes.
func (v *visit) schedulePod(ctx context.Context, pod *corev1.Pod) error {
	storage := v.storage(v.vmi.Namespace, v.vmi.Spec.Volumes)
	if o := v.unboundClaims(storage); o != nil {
		return v.markUnschedulable(ctx, pod, o.message)
	}
	fault, isDue := v.takeStep(step{v.vmi.UID, opSchedule}, v.options.Times.Scheduling)
	if !isDue {
		return nil
	}
	if text, failed := fault.Before(); failed {
		return errors.Join(v.markUnschedulable(ctx, pod, text), injected(opSchedule, text))
	}
	place, why := v.hosts.assign(v.vmi, v.api.listNodes(), v.api.listInstances())
	if why != "" {
		return v.markUnschedulable(ctx, pod, why)
	}
	if pending, err := v.selectNode(ctx, storage, place.node); pending || err != nil {
		return err
	}
	binding := &corev1.Binding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: place.node},
	}
	err := v.api.pods.client.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("binding").Body(binding).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("bind pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (v *visit) markUnschedulable(ctx context.Context, pod *corev1.Pod, why string) error {
	if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message == why
	}) {
		return nil
	}
	after := pod.DeepCopy()
	after.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why,
		LastTransitionTime: metav1.NewTime(v.now),
	}}
	_, err := v.api.pods.patch(ctx, pod, after, "status")
	return err
}

// patchPod writes a phase of a pod with the states of its containers, as the kubelet does.
func (v *visit) patchPod(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase) error {
	after := pod.DeepCopy()
	now := metav1.NewTime(v.now)
	after.Status.Phase = phase
	running := phase == corev1.PodRunning
	if running {
		after.Status.StartTime = &now
		after.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}
		if a := v.podAddress(v.vmi); a.IsValid() {
			after.Status.PodIP, after.Status.PodIPs = a.Addr().String(), []corev1.PodIP{{IP: a.Addr().String()}}
		}
	}
	after.Status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: running, Started: &running}
		switch phase {
		case corev1.PodRunning:
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		case corev1.PodFailed:
			status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: now}
		default:
			status.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: now}
		}
		after.Status.ContainerStatuses = append(after.Status.ContainerStatuses, status)
	}
	_, err := v.api.pods.patch(ctx, pod, after, "status")
	return err
}

// endPod stops the containers of a pod that is being deleted, and removes it from the API.
func (v *visit) endPod(ctx context.Context, pod *corev1.Pod) error {
	if v.vmi != nil && metav1.IsControlledBy(pod, v.vmi) && v.vmi.IsRunning() {
		return nil // virt-handler stops the guest first
	}
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0,"preconditions":{"uid":%q}}`, pod.UID)
	err := v.api.pods.client.Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).Body(body).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// handle acts as virt-handler does for an instance that virt-controller has handed over.
func (v *visit) handle(ctx context.Context) error {
	next := v.vmi.DeepCopy()
	stepErr := v.handlePhase(ctx, next)
	written, err := v.api.vmis.update(ctx, v.vmi, next)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		v.vmi = written
		err = v.endContainers(ctx)
	}
	return errors.Join(stepErr, err)
}

func (v *visit) handlePhase(ctx context.Context, vmi *virtv1.VirtualMachineInstance) error {
	switch {
	case vmi.IsFinal():
		v.hosts.release(vmi.UID)
		return v.power.switchOff(vmi)
	case vmi.Status.NodeName == "":
		return nil // virt-controller has not handed it over
	case vmi.DeletionTimestamp != nil:
		stopped, err := v.stopGuest(vmi)
		if stopped {
			enterPhase(vmi, virtv1.Succeeded, metav1.NewTime(v.now))
		}
		return err
	case !vmi.IsRunning():
		if running, err := v.boot(ctx, vmi); !running || err != nil {
			return err
		}
	}
	return v.keepRunning(ctx, vmi)
}

// endContainers writes the end of the launcher pod of an instance whose guest has ended.
func (v *visit) endContainers(ctx context.Context) error {
	if !v.vmi.IsFinal() {
		return nil
	}
	phase := corev1.PodSucceeded
	if v.vmi.Status.Phase == virtv1.Failed {
		phase = corev1.PodFailed
	}
	for _, pod := range v.podsOf(v.vmi.Namespace, v.vmi.Name) {
		if pod.Status.Phase == corev1.PodRunning && metav1.IsControlledBy(pod, v.vmi) {
			if err := v.patchPod(ctx, pod, phase); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

package workload

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mirror creates the mirror pods of a kubelet's static pods. They exist as long as the kubelet runs
// them, and cannot be evicted.
func (c *Cluster) mirror(k Kubelet) error {
	for _, name := range slices.Sorted(maps.Keys(k.StaticPods)) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name + "-" + k.Name, Namespace: metav1.NamespaceSystem,
				Labels:      map[string]string{"k8s-app": name, "tier": "control-plane"},
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: k.BootID},
			},
			Spec: corev1.PodSpec{
				NodeName: k.Name, HostNetwork: true, PriorityClassName: "system-cluster-critical",
				Containers:  []corev1.Container{{Name: name, Image: k.StaticPods[name]}},
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			},
		}
		maps.Copy(pod.Annotations, k.StaticPodAnnotations)
		if node, ok := c.node(k.Name); ok {
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(node, core("Node"))}
		}
		setDefaults(pod)
		if old, err := c.store.get(podKind, pod.Namespace, pod.Name); err == nil {
			pod.UID, pod.CreationTimestamp = metaOf(old).GetUID(), metaOf(old).GetCreationTimestamp()
		}
		if err := c.store.put(podKind, pod); err != nil {
			return err
		}
	}
	return nil
}

// RestartStaticPods has a running kubelet replace the mirror pods of its static pods.
func (c *Cluster) RestartStaticPods(k Kubelet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.alive(k.Name) {
		return nil
	}
	if err := c.mirror(k); err != nil {
		return err
	}
	return c.reconcile()
}

// terminate begins the deletion of a pod. Without a grace period or a kubelet, or if the pod has
// ended, it is deleted at once. Callers hold mu.
func (c *Cluster) terminate(pod *corev1.Pod, grace *int64) error {
	if grace == nil {
		grace = pod.Spec.TerminationGracePeriodSeconds
	}
	if mirrored(pod) && c.alive(pod.Spec.NodeName) {
		return nil // the kubelet creates it again at once
	}
	if *cmp.Or(grace, new(int64)) == 0 || pod.Spec.NodeName == "" || finished(pod) {
		return c.dropAndSettle(podKind, pod)
	}
	if old, err := c.store.get(podKind, pod.Namespace, pod.Name); err == nil && metaOf(old).GetDeletionTimestamp() != nil {
		return nil
	}
	until := metav1.NewTime(pod.DeletionTimestamp.Add(time.Duration(*grace) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &until, grace
	if err := c.store.put(podKind, pod); err != nil {
		return err
	}
	if c.timing.PodStop > 0 {
		c.after(c.timing.PodStop, c.reconcile)
	}
	return c.reconcile()
}

// collectPods deletes pods that their kubelet has stopped, and pods whose node no longer exists.
func (c *Cluster) collectPods() error {
	for _, pod := range c.pods() {
		_, exists := c.node(pod.Spec.NodeName)
		orphan := pod.Spec.NodeName != "" && !exists
		if orphan || (pod.DeletionTimestamp != nil && c.alive(pod.Spec.NodeName) && c.stopped(pod)) {
			if err := c.store.drop(podKind, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// stopped reports whether a deleted pod has had the time to stop.
func (c *Cluster) stopped(pod *corev1.Pod) bool {
	began := pod.DeletionTimestamp.Time
	if pod.DeletionGracePeriodSeconds != nil {
		began = began.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	}
	return !c.store.now().Before(began.Add(c.timing.PodStop))
}

// schedule binds pending pods to the node with the fewest pods that accepts them.
func (c *Cluster) schedule() error {
	pods := c.pods()
	load := map[string]int{}
	for _, pod := range pods {
		load[pod.Spec.NodeName]++
	}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		best := ""
		for _, obj := range c.store.list(nodeKind, "") {
			node := obj.(*corev1.Node)
			if takes(node, pod) && (best == "" || load[node.Name] < load[best]) {
				best = node.Name
			}
		}
		if best == "" {
			continue
		}
		load[best]++
		next := pod.DeepCopy()
		next.Spec.NodeName = best
		if err := c.store.put(podKind, next); err != nil {
			return err
		}
	}
	return nil
}

func takes(node *corev1.Node, pod *corev1.Pod) bool {
	if node.Spec.Unschedulable || !NodeReady(node) || node.DeletionTimestamp != nil {
		return false
	}
	for name, value := range pod.Spec.NodeSelector {
		if node.Labels[name] != value {
			return false
		}
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(pod, taint) {
			return false
		}
	}
	return true
}

func tolerates(pod *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == taint.Key || t.Key == "") &&
			(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
	})
}

// runPods plays the kubelets: a pod on a running node runs and is ready. On an unknown node its phase
// stays, but it is not ready.
func (c *Cluster) runPods() error {
	for _, pod := range c.pods() {
		node, exists := c.node(pod.Spec.NodeName)
		if !exists || finished(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		ready := condition(node, corev1.NodeReady)
		switch {
		case c.runs(pod) && !podReady(pod):
			pod = running(pod, node, c.store.now())
		case ready != nil && ready.Status == corev1.ConditionUnknown && podReady(pod):
			pod = pod.DeepCopy()
			setPodCondition(pod, corev1.PodReady, corev1.ConditionFalse, c.store.now())
		default:
			continue
		}
		if err := c.store.put(podKind, pod); err != nil {
			return err
		}
	}
	return nil
}

func running(pod *corev1.Pod, node *corev1.Node, now time.Time) *corev1.Pod {
	next := pod.DeepCopy()
	at := metav1.NewTime(now.Truncate(time.Second))
	next.Status.Phase = corev1.PodRunning
	next.Status.HostIP = node.Status.Addresses[0].Address
	if next.Spec.HostNetwork {
		next.Status.PodIP = next.Status.HostIP
	}
	if next.Status.StartTime == nil {
		next.Status.StartTime = &at
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		setPodCondition(next, kind, corev1.ConditionTrue, now)
	}
	started := true
	next.Status.ContainerStatuses = nil
	for _, container := range next.Spec.Containers {
		next.Status.ContainerStatuses = append(next.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	return next
}

func setPodCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, now time.Time) *corev1.PodCondition {
	at := metav1.NewTime(now.Truncate(time.Second))
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, at
			}
			return c
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: at})
	return &pod.Status.Conditions[len(pod.Status.Conditions)-1]
}

// Drain evicts every pod of a node once, except pods that a controller would recreate there or a
// budget protects, as a machine does before it goes down.
func (c *Cluster) Drain(name string) {
	c.mu.Lock()
	pods := c.pods()
	c.mu.Unlock()
	for _, pod := range pods {
		if pod.Spec.NodeName != name || mirrored(pod) || ownedBy(pod, daemonSetKind) {
			continue
		}
		_ = c.evict(pod.Namespace, pod.Name, metav1.DeleteOptions{}) // a protected pod stays, and ends with the machine
	}
}

// StaticPodsReady returns how many of a node's static pods exist and are ready.
func (c *Cluster) StaticPodsReady(node string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, pod := range c.pods() {
		if pod.Spec.NodeName == node && mirrored(pod) && podReady(pod) {
			n++
		}
	}
	return n
}

func (c *Cluster) alive(node string) bool {
	agent := c.kubelets[node]
	return agent != nil && agent.alive
}

func mirrored(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

func ownedBy(pod *corev1.Pod, k *kind) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == k.Kind
}

// NotReady returns the names of an addon's pods that are not ready, by its label k8s-app.
func (c *Cluster) NotReady(app string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var waiting []string
	for _, pod := range c.pods() {
		if pod.Labels["k8s-app"] == app && pod.DeletionTimestamp == nil && !podReady(pod) {
			waiting = append(waiting, pod.Name)
		}
	}
	return waiting
}

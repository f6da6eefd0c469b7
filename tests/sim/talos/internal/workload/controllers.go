package workload

import (
	"fmt"
	"hash/fnv"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
)

// reconcileDeployments keeps one ReplicaSet per Deployment. Instead of a rollout, a changed template
// changes the set's pods.
func (c *Cluster) reconcileDeployments() error {
	for _, obj := range c.store.list(deploymentKind, "") {
		d := obj.(*appsv1.Deployment)
		name := d.Name + "-" + templateHash(&d.Spec.Template)
		for _, set := range c.ownedSets(d) {
			if set.Name != name {
				if err := c.store.drop(replicaSetKind, set); err != nil {
					return err
				}
			}
		}
		present, err := c.store.get(replicaSetKind, d.Namespace, name)
		if err == nil && equality.Semantic.DeepEqual(present.(*appsv1.ReplicaSet).Spec.Replicas, d.Spec.Replicas) {
			continue
		}
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: d.Namespace, Labels: d.Spec.Template.Labels, Generation: 1,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, deploymentKind.GroupVersionKind)},
		}}
		if err == nil {
			set = present.(*appsv1.ReplicaSet).DeepCopy()
			set.Generation++
		}
		set.Spec = appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: *d.Spec.Template.DeepCopy()}
		if err := c.store.put(replicaSetKind, set); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) ownedSets(d *appsv1.Deployment) []*appsv1.ReplicaSet {
	var sets []*appsv1.ReplicaSet
	for _, obj := range c.store.list(replicaSetKind, d.Namespace) {
		set := obj.(*appsv1.ReplicaSet)
		if owner := metav1.GetControllerOf(set); owner != nil && owner.UID == d.UID {
			sets = append(sets, set)
		}
	}
	return sets
}

func (c *Cluster) reconcileReplicaSets() error {
	for _, obj := range c.store.list(replicaSetKind, "") {
		set := obj.(*appsv1.ReplicaSet)
		pods := slices.DeleteFunc(c.podsOf(set), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || finished(p) })
		want := replicas(set.Spec.Replicas)
		for len(pods) > want {
			if err := c.store.drop(podKind, pods[len(pods)-1]); err != nil {
				return err
			}
			pods = pods[:len(pods)-1]
		}
		for range want - len(pods) {
			if err := c.spawn(set, replicaSetKind, set.Spec.Template, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// reconcileDaemonSets keeps one pod of each set on every node.
func (c *Cluster) reconcileDaemonSets() error {
	for _, obj := range c.store.list(daemonSetKind, "") {
		set := obj.(*appsv1.DaemonSet)
		at := map[string]bool{}
		for _, pod := range c.podsOf(set) {
			at[pod.Spec.NodeName] = true
		}
		for _, node := range c.store.list(nodeKind, "") {
			name := metaOf(node).GetName()
			if at[name] || !c.alive(name) {
				continue
			}
			if err := c.spawn(set, daemonSetKind, set.Spec.Template, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) spawn(owner runtime.Object, k *kind, template corev1.PodTemplateSpec, node string) error {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	m := metaOf(owner)
	pod.Name, pod.Namespace = m.GetName()+"-"+rand.String(5), m.GetNamespace()
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(m, k.GroupVersionKind)}
	pod.Spec.NodeName = node
	setDefaults(pod)
	return c.store.put(podKind, pod)
}

func (c *Cluster) podsOf(owner metav1.Object) []*corev1.Pod {
	return slices.DeleteFunc(c.pods(), func(p *corev1.Pod) bool {
		ref := metav1.GetControllerOf(p)
		return ref == nil || ref.UID != owner.GetUID()
	})
}

// replicasOf returns how many pods the controllers of the given pods want, or -1 if a pod has no
// controller with replicas.
func (c *Cluster) replicasOf(pods []*corev1.Pod) int {
	total := 0
	counted := map[string]bool{}
	for _, pod := range pods {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != replicaSetKind.Kind {
			return -1
		}
		if counted[owner.Name] {
			continue
		}
		counted[owner.Name] = true
		obj, err := c.store.get(replicaSetKind, pod.Namespace, owner.Name)
		if err != nil {
			return -1
		}
		total += replicas(obj.(*appsv1.ReplicaSet).Spec.Replicas)
	}
	return total
}

// reconcileStatuses updates the statuses of the controllers.
func (c *Cluster) reconcileStatuses() error {
	for _, k := range []*kind{daemonSetKind, replicaSetKind, deploymentKind} {
		for _, obj := range c.store.list(k, "") {
			next := obj.DeepCopyObject()
			switch o := next.(type) {
			case *appsv1.DaemonSet:
				all, ready := c.count(c.podsOf(o))
				o.Status.ObservedGeneration = o.Generation
				o.Status.DesiredNumberScheduled, o.Status.CurrentNumberScheduled, o.Status.UpdatedNumberScheduled = all, all, all
				o.Status.NumberReady, o.Status.NumberAvailable, o.Status.NumberUnavailable = ready, ready, all-ready
			case *appsv1.ReplicaSet:
				all, ready := c.count(c.podsOf(o))
				o.Status.ObservedGeneration = o.Generation
				o.Status.Replicas, o.Status.FullyLabeledReplicas = all, all
				o.Status.ReadyReplicas, o.Status.AvailableReplicas = ready, ready
			case *appsv1.Deployment:
				o.Status.ObservedGeneration = o.Generation
				o.Status.Replicas, o.Status.ReadyReplicas = 0, 0
				for _, set := range c.ownedSets(o) {
					o.Status.Replicas += set.Status.Replicas
					o.Status.ReadyReplicas += set.Status.ReadyReplicas
				}
				o.Status.UpdatedReplicas, o.Status.AvailableReplicas = o.Status.Replicas, o.Status.ReadyReplicas
				o.Status.UnavailableReplicas = max(o.Status.Replicas-o.Status.ReadyReplicas, 0)
			}
			if unchanged(obj, next) {
				continue
			}
			if err := c.store.put(k, next); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) count(pods []*corev1.Pod) (all, ready int32) {
	for _, p := range pods {
		if p.DeletionTimestamp != nil || finished(p) {
			continue
		}
		all++
		if podReady(p) {
			ready++
		}
	}
	return all, ready
}

func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

func templateHash(template *corev1.PodTemplateSpec) string {
	h := fnv.New32a()
	encoded, _ := template.Marshal() // a decoded template can be encoded
	_, _ = h.Write(encoded)
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

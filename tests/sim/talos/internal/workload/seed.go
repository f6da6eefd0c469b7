package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Seed has what a control plane puts into a new cluster. An empty image omits the addon.
type Seed struct {
	ProxyImage, FlannelImage, DNSImage string
}

// Seed creates the first objects of the cluster. Existing objects stay.
func (c *Cluster) Seed(seed Seed) error {
	type first struct {
		kind *kind
		obj  runtime.Object
	}
	var objects []first
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		objects = append(objects, first{namespaceKind, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}})
	}
	objects = append(objects, first{serviceKind, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}}},
	}})
	if seed.ProxyImage != "" {
		objects = append(objects, first{daemonSetKind, daemonSet("kube-proxy", "kube-proxy", seed.ProxyImage)})
	}
	if seed.FlannelImage != "" {
		objects = append(objects, first{daemonSetKind, daemonSet("kube-flannel", "flannel", seed.FlannelImage)})
	}
	if seed.DNSImage != "" {
		objects = append(objects, first{deploymentKind, coreDNS(seed.DNSImage)})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range objects {
		m := metaOf(f.obj)
		if _, err := c.store.get(f.kind, m.GetNamespace(), m.GetName()); err == nil {
			continue
		}
		setDefaults(f.obj)
		if err := c.store.put(f.kind, f.obj); err != nil {
			return err
		}
	}
	return c.reconcile()
}

func daemonSet(name, app, image string) *appsv1.DaemonSet {
	labels := map[string]string{"k8s-app": app, "tier": "node"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": app}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					HostNetwork: true,
					Containers:  []corev1.Container{{Name: name, Image: image}},
					Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}
}

func coreDNS(image string) *appsv1.Deployment {
	labels := map[string]string{"k8s-app": "kube-dns"}
	two := int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "coredns", Namespace: metav1.NamespaceSystem, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &two,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "coredns", Image: image}},
					Tolerations: []corev1.Toleration{
						{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
					},
				},
			},
		},
	}
}

// PublishAuthority sets an authority, in PEM, in the ConfigMap kube-root-ca.crt of each namespace.
func (c *Cluster) PublishAuthority(pem string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	configMaps, _ := kindByPlural("configmaps", "")
	changed := false
	for _, namespace := range c.store.list(namespaceKind, "") {
		published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: metaOf(namespace).GetName()}}
		if obj, err := c.store.get(configMaps, published.Namespace, published.Name); err == nil {
			published = obj.(*corev1.ConfigMap).DeepCopy()
		}
		if published.Data["ca.crt"] == pem {
			continue
		}
		published.Data = map[string]string{"ca.crt": pem}
		if err := c.store.put(configMaps, published); err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return c.reconcile()
}

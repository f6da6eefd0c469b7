package kubevirt

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"
)

const (
	// version is the simulated KubeVirt release.
	version = "v1.9.0"
	// installNamespace is the namespace of KubeVirt's own objects.
	installNamespace = "kubevirt"
	// provisioner is the simulator's name in storage classes.
	provisioner = "storage.sim.vitistack.io"
)

// establishPoll is the interval of checks whether a new definition is served.
const establishPoll = 50 * time.Millisecond

// InstallDefinitions creates the definitions that the API server of config lacks, and returns once all of them are served. A
// second call changes nothing.
func InstallDefinitions(ctx context.Context, config *rest.Config, crds []*extv1.CustomResourceDefinition) error {
	groups := groupClients{config: rest.CopyConfig(config), scheme: runtime.NewScheme()}
	groups.config.QPS = -1
	var err error
	if groups.http, err = rest.HTTPClientFor(groups.config); err != nil {
		return err
	}
	client, err := groups.client(extv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if served(ctx, client, crd) == nil {
			continue
		}
		body, err := json.Marshal(crd)
		if err != nil {
			return err
		}
		err = client.Post().Resource("customresourcedefinitions").Body(body).Do(ctx).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		if err := waitServed(ctx, client, crd); err != nil {
			return fmt.Errorf("wait for %s: %w", crd.Name, err)
		}
	}
	return nil
}

// definitions returns the definitions of KubeVirt. They are decoded once, because tests start many simulators in one process.
var definitions = sync.OnceValues(func() ([]*extv1.CustomResourceDefinition, error) {
	files := CRDs()
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var crds []*extv1.CustomResourceDefinition
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		crd := &extv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
})

// served returns nil if the server knows the resource.
func served(ctx context.Context, client *rest.RESTClient, crd *extv1.CustomResourceDefinition) error {
	path := fmt.Sprintf("/apis/%s/%s/%s", crd.Spec.Group, crd.Spec.Versions[0].Name, crd.Spec.Names.Plural)
	return client.Get().AbsPath(path).Param("limit", "1").Do(ctx).Error()
}

func waitServed(ctx context.Context, client *rest.RESTClient, crd *extv1.CustomResourceDefinition) error {
	tick := time.NewTicker(establishPoll)
	defer tick.Stop()
	for {
		err := served(ctx, client, crd)
		if err == nil || !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// install creates the objects of a new cluster with KubeVirt.
func (s *Simulator) install(ctx context.Context) error {
	if err := ensure(ctx, s.api.spaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installNamespace}}); err != nil {
		return err
	}
	for _, h := range s.options.Hypervisors {
		node, err := h.node()
		if err != nil {
			return fmt.Errorf("hypervisor %s: %w", h.Name, err)
		}
		if err := ensure(ctx, s.api.nodes, node); err != nil {
			return err
		}
	}
	for _, c := range s.options.StorageClasses {
		if err := ensure(ctx, s.api.classes, c.object()); err != nil {
			return err
		}
		if err := ensureWithStatus(ctx, s.api.profiles, c.profile()); err != nil {
			return err
		}
	}
	return ensureWithStatus(ctx, s.api.kubevirts, kubevirtResource())
}

// ensure creates an object unless one with its name exists.
func ensure[P object](ctx context.Context, k *kind[P], o P) error {
	_, err := k.read(ctx, o.GetNamespace(), o.GetName())
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = k.create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ensureWithStatus creates a custom resource with its status unless one with its name exists. If another simulator of this API server
// does so at the same time, one of them writes the status.
func ensureWithStatus[P object](ctx context.Context, k *kind[P], o P) error {
	_, err := k.read(ctx, o.GetNamespace(), o.GetName())
	if !apierrors.IsNotFound(err) {
		return err
	}
	made, err := k.apply(ctx, o)
	if err != nil {
		return err
	}
	after := o.DeepCopyObject().(P)
	after.SetResourceVersion(made.GetResourceVersion())
	after.SetUID(made.GetUID())
	after.SetCreationTimestamp(made.GetCreationTimestamp())
	after.SetGeneration(made.GetGeneration())
	_, err = k.patch(ctx, made, after, "status")
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (h Hypervisor) node() (*corev1.Node, error) {
	cpu, err := resource.ParseQuantity(h.CPU)
	if err != nil {
		return nil, fmt.Errorf("cpu %q: %w", h.CPU, err)
	}
	memory, err := resource.ParseQuantity(h.Memory)
	if err != nil {
		return nil, fmt.Errorf("memory %q: %w", h.Memory, err)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              cpu,
		corev1.ResourceMemory:           memory,
		corev1.ResourcePods:             resource.MustParse("250"),
		"devices.kubevirt.io/kvm":       resource.MustParse("1k"),
		"devices.kubevirt.io/tun":       resource.MustParse("1k"),
		"devices.kubevirt.io/vhost-net": resource.MustParse("1k"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: h.Name,
			Labels: map[string]string{
				virtv1.NodeSchedulable:     "true",
				corev1.LabelHostname:       h.Name,
				corev1.LabelArchStable:     "amd64",
				corev1.LabelOSStable:       "linux",
				"cpu.node.kubevirt.io/svm": "true",
			},
		},
		// No kubelet starts pods here.
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: SimulatedTaint, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				Reason: "KubeletReady", Message: "kubelet is posting ready status",
				LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
			}},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: "amd64", OperatingSystem: "linux", OSImage: "simulated hypervisor",
				KubeletVersion: "v1.35.4", ContainerRuntimeVersion: "containerd://2.1.0", KernelVersion: "6.12.0",
			},
		},
	}, nil
}

func (c StorageClass) object() *storagev1.StorageClass {
	binding := storagev1.VolumeBindingImmediate
	if c.WaitForFirstConsumer {
		binding = storagev1.VolumeBindingWaitForFirstConsumer
	}
	reclaim := corev1.PersistentVolumeReclaimDelete
	class := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: c.Name},
		Provisioner:          provisioner,
		ReclaimPolicy:        &reclaim,
		VolumeBindingMode:    &binding,
		AllowVolumeExpansion: &c.Expandable,
	}
	if c.Default {
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return class
}

// profile returns CDI's profile of a network block device that several nodes can open. A DataVolume
// without modes gets the first set.
func (c StorageClass) profile() *cdiv1.StorageProfile {
	block, filesystem := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	return &cdiv1.StorageProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "StorageProfile"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Name},
		Status: cdiv1.StorageProfileStatus{
			StorageClass: &c.Name,
			Provisioner:  new(provisioner),
			ClaimPropertySets: []cdiv1.ClaimPropertySet{
				{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: &block},
				{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &block},
				{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &filesystem},
			},
		},
	}
}

// kubevirtResource is the resource with KubeVirt's version and health.
func kubevirtResource() *virtv1.KubeVirt {
	now := metav1.Now()
	condition := func(t virtv1.KubeVirtConditionType, status corev1.ConditionStatus, reason, message string) virtv1.KubeVirtCondition {
		return virtv1.KubeVirtCondition{
			Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: now, LastProbeTime: now,
		}
	}
	return &virtv1.KubeVirt{
		TypeMeta:   metav1.TypeMeta{APIVersion: virtv1.SchemeGroupVersion.String(), Kind: "KubeVirt"},
		ObjectMeta: metav1.ObjectMeta{Name: "kubevirt", Namespace: installNamespace},
		Status: virtv1.KubeVirtStatus{
			Phase:                   virtv1.KubeVirtPhaseDeployed,
			OperatorVersion:         version,
			ObservedKubeVirtVersion: version,
			TargetKubeVirtVersion:   version,
			DefaultArchitecture:     "amd64",
			Conditions: []virtv1.KubeVirtCondition{
				condition(virtv1.KubeVirtConditionAvailable, corev1.ConditionTrue, "AllComponentsReady", "All components are ready."),
				condition(virtv1.KubeVirtConditionProgressing, corev1.ConditionFalse, "AllComponentsReady", "All components are ready."),
				condition(virtv1.KubeVirtConditionDegraded, corev1.ConditionFalse, "AllComponentsReady", "All components are ready."),
			},
		},
	}
}

package engine

import (
	"fmt"
	"io/fs"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/tests/stand/feed"
)

// Resources of the stack and of the objects that it creates.
var (
	NetworkNamespaces     = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha2", Resource: "networknamespaces"}
	NetworkConfigurations = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "networkconfigurations"}
	IPAllocations         = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha2", Resource: "ipallocations"}
	Machines              = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machines"}
	MachineProviders      = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machineproviders"}
	MachineClasses        = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machineclasses"}
	ClusterTemplates      = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "clustertemplates"}
	NetworkPools          = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "networkpools"}
	KubernetesClusters    = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "kubernetesclusters"}
	EtcdBackups           = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "etcdbackups"}
	Leases                = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	Secrets               = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	ConfigMaps            = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	Events                = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	Claims                = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	Volumes               = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	VirtualMachines       = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}
	Instances             = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}
	Namespaces            = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// Example returns a manifest of apis/examples.
func (e *Engine) Example(name string) string {
	e.t.Helper()
	doc, err := fs.ReadFile(apis.Examples, "examples/"+name)
	if err != nil {
		e.t.Fatal(err)
	}
	return string(doc)
}

// Apply creates the objects of a YAML stream, and missing namespaces. Objects without a namespace get
// the given one, which is empty for cluster-scoped kinds.
func (e *Engine) Apply(namespace, stream string) {
	e.t.Helper()
	for _, doc := range strings.Split(stream, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
			e.t.Fatalf("read %s: %v", doc, err)
		}
		if obj.GetKind() == "Namespace" {
			e.CreateNamespace(obj.GetName())
			continue
		}
		if obj.GetNamespace() == "" {
			obj.SetNamespace(namespace)
		}
		if obj.GetNamespace() != "" {
			e.CreateNamespace(obj.GetNamespace())
		}
		resource, _ := meta.UnsafeGuessKindToResource(obj.GroupVersionKind())
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		if _, err := e.in(resource, obj.GetNamespace()).Create(e.t.Context(), obj, options); err != nil {
			e.t.Fatalf("apply %s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// CreateNamespace creates a namespace unless it exists.
func (e *Engine) CreateNamespace(name string) {
	e.t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	_, err := e.Client.Resource(Namespaces).Create(e.t.Context(), obj, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		e.t.Fatal(err)
	}
}

// StaticNetwork returns the manifest of a network with the addresses of this engine, from the first to
// the last host number of its /24.
func (e *Engine) StaticNetwork(name string, first, last int) string {
	base := strings.TrimSuffix(e.Network().Addr().String(), ".0")
	return fmt.Sprintf(`apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata:
  name: %s
spec:
  datacenterIdentifier: no-west-az1
  supervisorIdentifier: test
  networkProvisioning:
    provider: manual
    manual: {ipv4CIDR: %s.0/24, ipv4Gateway: %s.1, vlanId: 100}
  ipAllocation:
    type: static
    static: {ipv4RangeStart: %s.%d, ipv4RangeEnd: %s.%d}
`, name, base, base, base, first, base, last)
}

// Get returns an object, or nil if it does not exist.
func (e *Engine) Get(resource schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	e.t.Helper()
	obj, err := e.in(resource, namespace).Get(e.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return obj
}

// List returns the objects with matching labels in a namespace, or in all namespaces if it is empty.
func (e *Engine) List(resource schema.GroupVersionResource, namespace, selector string) []unstructured.Unstructured {
	e.t.Helper()
	list, err := e.in(resource, namespace).List(e.t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		e.t.Fatal(err)
	}
	return list.Items
}

// Delete requests the deletion of an object.
func (e *Engine) Delete(resource schema.GroupVersionResource, namespace, name string) {
	e.t.Helper()
	err := e.in(resource, namespace).Delete(e.t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		e.t.Fatal(err)
	}
}

func (e *Engine) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return e.Client.Resource(resource)
	}
	return e.Client.Resource(resource).Namespace(namespace)
}

// UntilPhase waits until an object has a phase, and returns it. It also waits while the API server is
// down.
func (e *Engine) UntilPhase(resource schema.GroupVersionResource, namespace, name, phase string) *unstructured.Unstructured {
	e.t.Helper()
	var obj *unstructured.Unstructured
	feed.Until(e.t, resource.Resource+" "+name+" is "+phase, func() (bool, string) {
		var err error
		if obj, err = e.in(resource, namespace).Get(e.t.Context(), name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		status, _ := yaml.Marshal(obj.Object["status"])
		now, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		if provisioning, ok, _ := unstructured.NestedString(obj.Object, "status", "provisioningPhase"); ok {
			now = provisioning
		}
		return now == phase, string(status)
	})
	return obj
}

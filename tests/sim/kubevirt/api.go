package kubevirt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// ServiceAccount is the user of KubeVirt's controllers. Admission rejects writes of their objects by
// other users.
const ServiceAccount = "system:serviceaccount:kubevirt:kubevirt-controller"

// api reads and writes the objects of the cluster.
type api struct {
	vms       *kind[*virtv1.VirtualMachine]
	vmis      *kind[*virtv1.VirtualMachineInstance]
	imports   *kind[*cdiv1.DataVolume]
	claims    *kind[*corev1.PersistentVolumeClaim]
	volumes   *kind[*corev1.PersistentVolume]
	nodes     *kind[*corev1.Node]
	classes   *kind[*storagev1.StorageClass]
	networks  *kind[*networkAttachment]
	pods      *kind[*corev1.Pod]
	profiles  *kind[*cdiv1.StorageProfile]
	kubevirts *kind[*virtv1.KubeVirt]
	secrets   *kind[*corev1.Secret]
	spaces    *kind[*corev1.Namespace]
	accounts  *kind[*corev1.ServiceAccount]
	events    *kind[*corev1.Event]

	mutating   *kind[*admissionregistrationv1.MutatingWebhookConfiguration]
	validating *kind[*admissionregistrationv1.ValidatingWebhookConfiguration]
}

func newAPI(config *rest.Config, namespace string) (*api, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "virt-controller/" + version
	config.Impersonate = rest.ImpersonationConfig{UserName: ServiceAccount, Groups: []string{"system:masters"}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, storagev1.AddToScheme, admissionregistrationv1.AddToScheme, virtv1.AddToScheme, cdiv1.AddToScheme, addNetworkAttachment,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register types: %w", err)
		}
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make an HTTP client: %w", err)
	}
	clients, err := groupClients{config: config, scheme: scheme, http: transport}.all(
		corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, virtv1.SchemeGroupVersion,
		cdiv1.SchemeGroupVersion, networkGroup, admissionregistrationv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	core, storage, virt, cdi, multus, admit := clients[0], clients[1], clients[2], clients[3], clients[4], clients[5]
	const cluster = ""
	return &api{
		vms:       newKind(virt, "virtualmachines", namespace, &virtv1.VirtualMachine{}),
		vmis:      newKind(virt, "virtualmachineinstances", namespace, &virtv1.VirtualMachineInstance{}),
		imports:   newKind(cdi, "datavolumes", namespace, &cdiv1.DataVolume{}),
		claims:    newKind(core, "persistentvolumeclaims", namespace, &corev1.PersistentVolumeClaim{}),
		volumes:   newKind(core, "persistentvolumes", cluster, &corev1.PersistentVolume{}),
		nodes:     newKind(core, "nodes", cluster, &corev1.Node{}),
		classes:   newKind(storage, "storageclasses", cluster, &storagev1.StorageClass{}),
		networks:  newKind(multus, "network-attachment-definitions", cluster, &networkAttachment{}),
		pods:      newKind(core, "pods", namespace, &corev1.Pod{}),
		profiles:  unwatched(cdi, "storageprofiles", &cdiv1.StorageProfile{}),
		kubevirts: unwatched(virt, "kubevirts", &virtv1.KubeVirt{}),
		secrets:   unwatched(core, "secrets", &corev1.Secret{}),
		spaces:    unwatched(core, "namespaces", &corev1.Namespace{}),
		accounts:  unwatched(core, "serviceaccounts", &corev1.ServiceAccount{}),
		events:    unwatched(core, "events", &corev1.Event{}),

		mutating:   unwatched(admit, "mutatingwebhookconfigurations", &admissionregistrationv1.MutatingWebhookConfiguration{}),
		validating: unwatched(admit, "validatingwebhookconfigurations", &admissionregistrationv1.ValidatingWebhookConfiguration{}),
	}, nil
}

// groupClients returns one client for each API group, on one connection.
type groupClients struct {
	config *rest.Config
	scheme *runtime.Scheme
	http   *http.Client
}

// all returns the clients of several groups, in their order.
func (g groupClients) all(groups ...schema.GroupVersion) ([]*rest.RESTClient, error) {
	var clients []*rest.RESTClient
	for _, group := range groups {
		client, err := g.client(group)
		if err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

func (g groupClients) client(group schema.GroupVersion) (*rest.RESTClient, error) {
	config := rest.CopyConfig(g.config)
	config.GroupVersion = &group
	config.APIPath = "/apis"
	if group.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(g.scheme).WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(config, g.http)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", group, err)
	}
	return client, nil
}

// object is a pointer to an API type.
type object interface {
	comparable
	metav1.Object
	runtime.Object
}

// kind reads objects of a kind from a cache and writes them through the API. The cache includes the
// results of its own writes at once.
type kind[P object] struct {
	client    *rest.RESTClient
	plural    string
	namespace string
	example   P
	cache     *cache[P] // nil for a kind without a watch
}

func newKind[P object](client *rest.RESTClient, plural, namespace string, example P) *kind[P] {
	return &kind[P]{client: client, plural: plural, namespace: namespace, example: example, cache: newCache[P]()}
}

func unwatched[P object](client *rest.RESTClient, plural string, example P) *kind[P] {
	return &kind[P]{client: client, plural: plural, example: example}
}

func (k *kind[P]) remember(o P) {
	if k.cache != nil {
		k.cache.remember(o)
	}
}

func (k *kind[P]) empty() P { return k.example.DeepCopyObject().(P) }

// get returns a cached object, which must not be changed, or nil.
func (k *kind[P]) get(namespace, name string) P { return k.cache.get(namespace, name) }

// read returns an object from the API server, for kinds without a watch.
func (k *kind[P]) read(ctx context.Context, namespace, name string) (P, error) {
	found := k.empty()
	err := k.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(k.plural).Name(name).Do(ctx).Into(found)
	return found, err
}

func (k *kind[P]) create(ctx context.Context, o P) (P, error) {
	made := k.empty()
	err := k.client.Post().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").
		Resource(k.plural).Body(o).Do(ctx).Into(made)
	if err != nil {
		return made, fmt.Errorf("create %s %s/%s: %w", k.plural, o.GetNamespace(), o.GetName(), err)
	}
	k.remember(made)
	return made, nil
}

// apply creates a custom resource that does not exist, by server-side apply. The object must have its apiVersion and kind. The API server
// delays a POST for two seconds if the definition is new, see customresource_handler.go of k8s.io/apiextensions-apiserver.
func (k *kind[P]) apply(ctx context.Context, o P) (P, error) {
	made := k.empty()
	body, err := json.Marshal(o)
	if err != nil {
		return made, fmt.Errorf("encode %s %s/%s: %w", k.plural, o.GetNamespace(), o.GetName(), err)
	}
	err = k.client.Patch(types.ApplyPatchType).NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").
		Resource(k.plural).Name(o.GetName()).Param("fieldManager", "kubevirt-sim").Body(body).Do(ctx).Into(made)
	if err != nil {
		return made, fmt.Errorf("apply %s %s/%s: %w", k.plural, o.GetNamespace(), o.GetName(), err)
	}
	k.remember(made)
	return made, nil
}

// patch writes the difference between two states of an object, if there is one. It returns a conflict
// if the object is no longer in the first state.
func (k *kind[P]) patch(ctx context.Context, before, after P, subresource ...string) (P, error) {
	body, err := difference(before, after)
	if err != nil || body == nil {
		return before, err
	}
	written := k.empty()
	err = k.client.Patch(types.MergePatchType).NamespaceIfScoped(before.GetNamespace(), before.GetNamespace() != "").
		Resource(k.plural).Name(before.GetName()).SubResource(subresource...).Body(body).Do(ctx).Into(written)
	if err != nil {
		return before, fmt.Errorf("patch %s %s/%s: %w", k.plural, before.GetNamespace(), before.GetName(), err)
	}
	k.remember(written)
	return written, nil
}

// update replaces an object, if the second state differs from the first one. It returns a conflict if the object
// is no longer in the first state. Unlike a merge patch it keeps fields that are null, such as the time of
// a probe, which virt-controller compares.
func (k *kind[P]) update(ctx context.Context, before, after P) (P, error) {
	if body, err := difference(before, after); err != nil || body == nil {
		return before, err
	}
	written := k.empty()
	err := k.client.Put().NamespaceIfScoped(before.GetNamespace(), before.GetNamespace() != "").
		Resource(k.plural).Name(before.GetName()).Body(after).Do(ctx).Into(written)
	if err != nil {
		return before, fmt.Errorf("update %s %s/%s: %w", k.plural, before.GetNamespace(), before.GetName(), err)
	}
	k.remember(written)
	return written, nil
}

// delete deletes exactly this object. It returns the remaining object while it has finalizers, and
// otherwise nil. An object that is deleted or replaced is no error.
func (k *kind[P]) delete(ctx context.Context, o P) (P, error) {
	var none P
	options := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":%q}}`, o.GetUID())
	answer, err := k.client.Delete().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").
		Resource(k.plural).Name(o.GetName()).Body(options).Do(ctx).Raw()
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("delete %s %s/%s: %w", k.plural, o.GetNamespace(), o.GetName(), err)
	}
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(answer, &head); err != nil {
		return none, fmt.Errorf("decode what is left of %s %s/%s: %w", k.plural, o.GetNamespace(), o.GetName(), err)
	}
	if head.UID != o.GetUID() || len(head.Finalizers) == 0 {
		return none, nil // the answer is a Status, or the last state of the object
	}
	left := k.empty()
	if err := json.Unmarshal(answer, left); err != nil {
		return none, fmt.Errorf("decode what is left of %s %s/%s: %w", k.plural, o.GetNamespace(), o.GetName(), err)
	}
	k.remember(left)
	return left, nil
}

// difference returns a merge patch with the resource version of the first state, or nil.
func difference(before, after any) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode the old state: %w", err)
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode the new state: %w", err)
	}
	if bytes.Equal(from, to) {
		return nil, nil
	}
	body, err := jsonpatch.CreateMergePatch(from, to)
	if err != nil {
		return nil, fmt.Errorf("compare two states: %w", err)
	}
	if string(body) == "{}" {
		return nil, nil
	}
	version := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q}}`, before.(metav1.Object).GetResourceVersion())
	return jsonpatch.MergeMergePatches(body, version)
}

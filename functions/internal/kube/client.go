// Package kube reads and writes the Kubernetes API for functions: one connection, a scheme
// with only the kinds that a function uses, and conditional writes.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/json"

	"github.com/vitistack/stack/events/restconfig"
	"github.com/vitistack/stack/functions/internal/coalesce"
)

// Object is a Kubernetes object with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// ObjectList is a list of Kubernetes objects.
type ObjectList interface {
	runtime.Object
	metav1.ListInterface
}

// Client reads and writes the kinds that it was created with. It has no cache, but
// concurrent identical reads share one request.
type Client struct {
	scheme *runtime.Scheme
	params runtime.ParameterCodec
	rest   map[schema.GroupVersion]rest.Interface
	reads  coalesce.Calls[rest.Result]
	views  coalesce.Calls[view]
}

// Connect returns a client for the API server that restconfig.Load finds. Otherwise it is like New.
func Connect(userAgent string, add ...func(*runtime.Scheme) error) (*Client, error) {
	config, err := restconfig.Load(userAgent)
	if err != nil {
		return nil, err
	}
	return New(config, userAgent, add...)
}

// New returns a client for the kinds that add registers. userAgent names the function in the
// logs of the API server.
func New(config *rest.Config, userAgent string, add ...func(*runtime.Scheme) error) (*Client, error) {
	return newClient(config, rest.HTTPClientFor, userAgent, add)
}

// NewRemote is New for an API server that an object or a Secret names. It connects by
// HTTPClientFor.
func NewRemote(config *rest.Config, userAgent string, add ...func(*runtime.Scheme) error) (*Client, error) {
	return newClient(config, HTTPClientFor, userAgent, add)
}

func newClient(config *rest.Config, through func(*rest.Config) (*http.Client, error), userAgent string, add []func(*runtime.Scheme) error) (*Client, error) {
	c := &Client{scheme: runtime.NewScheme(), rest: map[schema.GroupVersion]rest.Interface{}}
	for _, f := range add {
		if err := f(c.scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	c.params = runtime.NewParameterCodec(c.scheme)
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	config.DisableCompression = true // between neighbours it costs more time than it saves
	config.Wrap(countRequests)
	config.NegotiatedSerializer = serializer.NewCodecFactory(c.scheme).WithoutConversion()
	httpClient, err := through(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	for _, gv := range c.scheme.PrioritizedVersionsAllGroups() {
		if err := c.connect(config, httpClient, gv); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Client) connect(config *rest.Config, httpClient *http.Client, gv schema.GroupVersion) error {
	config = rest.CopyConfig(config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	client, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("connect to API %s: %w", gv, err)
	}
	c.rest[gv] = client
	return nil
}

// Kinds registers objects of one API group version, for New.
func Kinds(gv schema.GroupVersion, objects ...runtime.Object) func(*runtime.Scheme) error {
	return func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypes(gv, objects...)
		metav1.AddToGroupVersion(scheme, gv)
		return nil
	}
}

// Secrets returns a function that reads the data of Secrets, with a timeout. The client needs
// the kind Secret.
func (c *Client) Secrets(timeout time.Duration) func(namespace, name string) (map[string][]byte, error) {
	return func(namespace, name string) (map[string][]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		secret := &corev1.Secret{}
		err := c.Get(ctx, namespace, name, secret)
		return secret.Data, err
	}
}

// Get reads an object into obj, and replaces all that obj held. An error leaves obj
// unchanged. NotFound is true for the error if the object does not exist, or if its name is
// invalid, such as ../other/secret.
func (c *Client) Get(ctx context.Context, namespace, name string, obj Object) error {
	client, ref, err := c.resource(obj)
	if err != nil {
		return err
	}
	if name == "" || len(content.IsPathSegmentName(name)) > 0 || len(content.IsPathSegmentName(namespace)) > 0 {
		return wrap(apierrors.NewNotFound(ref.GroupResource(), name), "read", ref, namespace, name)
	}
	request := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(ref.Resource).Name(name)
	err = decode(c.read(ctx, "get", request), obj)
	return wrap(err, "read", ref, namespace, name)
}

// List reads the objects of a namespace, or of all namespaces where it is empty,
// that match a label selector into list. An empty selector matches all.
func (c *Client) List(ctx context.Context, namespace, selector string, list ObjectList) error {
	return c.ListPage(ctx, namespace, metav1.ListOptions{LabelSelector: selector}, list)
}

// ListCached is List as the API server's cache of the resource has it, which lacks the changes of the last milliseconds. It does not wait for
// them: List waits up to 100 ms for each resource that has not changed itself while others have (progressRequestPeriod in
// pkg/storage/cacher/progress of k8s.io/apiserver). It is for choices that are checked, or that an earlier delivery could have made.
func (c *Client) ListCached(ctx context.Context, namespace, selector string, list ObjectList) error {
	return c.ListPage(ctx, namespace, metav1.ListOptions{LabelSelector: selector, ResourceVersion: "0"}, list)
}

// ListToChoose lists the objects of a namespace, or of all, and calls choose, which chooses among them. It lists them as ListCached does, and if choose
// returns an error, lists the latest state and calls choose again: the cache may lack the last change.
func (c *Client) ListToChoose(ctx context.Context, namespace string, list ObjectList, choose func() error) error {
	if err := c.ListCached(ctx, namespace, "", list); err != nil {
		return err
	}
	if choose() == nil {
		return nil
	}
	if err := c.List(ctx, namespace, "", list); err != nil {
		return err
	}
	return choose()
}

// ListPage is List with all the options of the API.
func (c *Client) ListPage(ctx context.Context, namespace string, options metav1.ListOptions, list ObjectList) error {
	request, ref, err := c.listing(namespace, options, list)
	if err != nil {
		return err
	}
	err = decode(c.read(ctx, "list", request), list)
	return wrap(err, "list", ref, namespace, "")
}

// listing is the request for a list.
func (c *Client) listing(namespace string, options metav1.ListOptions, list ObjectList) (*rest.Request, schema.GroupVersionResource, error) {
	client, ref, err := c.resource(list)
	if err != nil {
		return nil, ref, err
	}
	return client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(ref.Resource).VersionedParams(&options, c.params), ref, nil
}

// read makes a request, or waits for the answer to a later one for the same.
func (c *Client) read(ctx context.Context, verb string, request *rest.Request) rest.Result {
	return c.reads.Do(ctx, verb+" "+request.URL().String(), func(ctx context.Context) rest.Result { return request.Do(ctx) })
}

// decode reads an answer into obj, whose kind is known: rest.Result.Into parses it once
// more to find out which it is. Like that, it leaves no kind in obj.
func decode(answer rest.Result, obj runtime.Object) error {
	if err := parse(answer, obj); err != nil {
		return err
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}

// parse reads an answer into whatever its JSON decodes into, and leaves nothing there
// that the answer does not say. An answer that is an error leaves it as it was.
func parse(answer rest.Result, into any) error {
	raw, err := answer.Raw()
	if err != nil {
		return answer.Error()
	}
	reflect.ValueOf(into).Elem().SetZero()
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	return nil
}

// Create creates obj and replaces it by the object that the API server has stored. If an
// object of that name exists, it returns an error for which AlreadyExists is true, and
// changes nothing. The API server refuses unknown fields.
func (c *Client) Create(ctx context.Context, obj Object) error {
	client, ref, err := c.resource(obj)
	if err != nil {
		return err
	}
	options := &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	err = decode(client.Post().NamespaceIfScoped(obj.GetNamespace(), obj.GetNamespace() != "").Resource(ref.Resource).
		VersionedParams(options, c.params).Body(obj).Do(ctx), obj)
	return wrap(err, "create", ref, obj.GetNamespace(), obj.GetName())
}

// Delete deletes obj if the object still has its UID. It returns no error if the object does
// not exist, or was replaced by another object of the same name.
func (c *Client) Delete(ctx context.Context, obj Object) error {
	uid := obj.GetUID()
	var preconditions *metav1.Preconditions
	if uid != "" {
		preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := c.remove(ctx, obj, preconditions)
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// DeleteExactly is Delete on the condition that obj has not been written since it was read.
// Otherwise it returns an error for which Conflict is true.
func (c *Client) DeleteExactly(ctx context.Context, obj Object) error {
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return c.remove(ctx, obj, &metav1.Preconditions{UID: &uid, ResourceVersion: &version})
}

func (c *Client) remove(ctx context.Context, obj Object, preconditions *metav1.Preconditions) error {
	client, ref, err := c.resource(obj)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	options := &metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: preconditions}
	err = client.Delete().NamespaceIfScoped(obj.GetNamespace(), obj.GetNamespace() != "").Resource(ref.Resource).
		Name(obj.GetName()).Body(options).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "delete", ref, obj.GetNamespace(), obj.GetName())
}

// Update replaces obj, on the condition that it has not been written since it was read.
// Otherwise it returns an error for which Conflict is true.
func (c *Client) Update(ctx context.Context, obj Object) error {
	client, ref, err := c.resource(obj)
	if err != nil {
		return err
	}
	options := &metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}
	err = decode(client.Put().NamespaceIfScoped(obj.GetNamespace(), obj.GetNamespace() != "").Resource(ref.Resource).
		Name(obj.GetName()).VersionedParams(options, c.params).Body(obj).Do(ctx), obj)
	return wrap(err, "update", ref, obj.GetNamespace(), obj.GetName())
}

// patch sends a merge patch for obj or one of its subresources, and reads back
// the object. An empty manager is that of the client.
func (c *Client) patch(ctx context.Context, as types.PatchType, manager string, obj Object, body []byte, subresource ...string) error {
	client, ref, err := c.resource(obj)
	if err != nil {
		return err
	}
	options := &metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict, FieldManager: manager}
	err = decode(client.Patch(as).NamespaceIfScoped(obj.GetNamespace(), obj.GetNamespace() != "").
		Resource(ref.Resource).Name(obj.GetName()).SubResource(subresource...).
		VersionedParams(options, c.params).Body(body).Do(ctx), obj)
	verb := "patch"
	if as == types.ApplyPatchType {
		verb = "apply"
	}
	return wrap(err, verb, ref, obj.GetNamespace(), obj.GetName())
}

func (c *Client) resource(obj runtime.Object) (rest.Interface, schema.GroupVersionResource, error) {
	kinds, _, err := c.scheme.ObjectKinds(obj)
	if err != nil {
		return nil, schema.GroupVersionResource{}, fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	kind := kinds[0]
	if l := len(kind.Kind) - len("List"); meta.IsListType(obj) && l > 0 {
		kind.Kind = kind.Kind[:l]
	}
	if kind.Kind == networkAttachmentDefinition {
		return c.rest[kind.GroupVersion()], kind.GroupVersion().WithResource("network-attachment-definitions"), nil
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return c.rest[kind.GroupVersion()], plural, nil
}

// networkAttachmentDefinition is the one kind whose resource has another name
// than the rule gives.
const networkAttachmentDefinition = "NetworkAttachmentDefinition"

func wrap(err error, verb string, ref schema.GroupVersionResource, namespace, name string) error {
	switch {
	case err == nil:
		return nil
	case namespace == "" && name == "":
		return fmt.Errorf("%s %s: %w", verb, ref.Resource, err)
	case name == "":
		return fmt.Errorf("%s %s in %s: %w", verb, ref.Resource, namespace, err)
	case namespace == "":
		return fmt.Errorf("%s %s %s: %w", verb, ref.Resource, name, err)
	default:
		return fmt.Errorf("%s %s %s/%s: %w", verb, ref.Resource, namespace, name, err)
	}
}

// NotFound reports whether an object does not exist.
func NotFound(err error) bool { return apierrors.IsNotFound(err) }

// AlreadyExists reports whether an object of the same name exists.
func AlreadyExists(err error) bool { return apierrors.IsAlreadyExists(err) }

// Conflict reports whether an object has been written since it was read.
func Conflict(err error) bool { return apierrors.IsConflict(err) }

// RejectionMessage reports whether the API server rejects an object, and returns its message.
func RejectionMessage(err error) (string, bool) {
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsForbidden(err) {
		return "", false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error(), true
	}
	return status.Status().Message, true
}

// RejectedFields returns the paths of the fields for which the API server rejects an object, for example
// spec.topology.workers[0].replicas.
func RejectedFields(err error) (all []string) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			all = append(all, c.Field)
		}
	}
	return all
}

// Events registers the kind that RecordEvent writes, for New.
func Events(scheme *runtime.Scheme) error {
	return Kinds(corev1.SchemeGroupVersion, &corev1.Event{})(scheme)
}

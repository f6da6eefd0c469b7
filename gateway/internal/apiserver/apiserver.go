// Package apiserver reads from the Kubernetes API server what the gateway does not watch: the owners of tokens, their rights, the
// generated files of clusters, the Events of objects, MachineClasses, the Broker's address and the signing keys.
package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Client is a client of the API server.
type Client struct {
	params                              runtime.ParameterCodec
	core, authentication, authorization rest.Interface
}

// New returns a client. It sends no request.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Event{}, &corev1.EventList{})
	scheme.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenReview{})
	scheme.AddKnownTypes(authorizationv1.SchemeGroupVersion, &authorizationv1.SubjectAccessReview{})
	versions := []schema.GroupVersion{corev1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion}
	for _, gv := range versions {
		metav1.AddToGroupVersion(scheme, gv)
	}
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	c := &Client{params: runtime.NewParameterCodec(scheme)}
	for i, to := range []*rest.Interface{&c.core, &c.authentication, &c.authorization} {
		one := rest.CopyConfig(config)
		one.GroupVersion = &versions[i]
		one.APIPath = "/apis"
		if versions[i].Group == "" {
			one.APIPath = "/api"
		}
		if *to, err = rest.RESTClientForConfigAndClient(one, httpClient); err != nil {
			return nil, fmt.Errorf("connect to API %s: %w", versions[i], err)
		}
	}
	return c, nil
}

// User is the owner of a token.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Authenticate returns the owner of a bearer token by a TokenReview, and false for an invalid token.
func (c *Client) Authenticate(ctx context.Context, token string) (User, bool, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.authentication.Post().Resource("tokenreviews").Body(review).Do(ctx).Into(review); err != nil {
		return User{}, false, fmt.Errorf("review token: %w", err)
	}
	if !review.Status.Authenticated {
		return User{}, false, nil
	}
	u := User{Name: review.Status.User.Username, UID: review.Status.User.UID, Groups: review.Status.User.Groups, Extra: map[string][]string{}}
	for key, values := range review.Status.User.Extra {
		u.Extra[key] = values
	}
	return u, true, nil
}

// Allowed reports whether a user may use a verb, such as get or post, on a path of the gateway. ClusterRoles grant it by
// nonResourceURLs.
func (c *Client) Allowed(ctx context.Context, u User, verb, path string) (bool, error) {
	return c.review(ctx, u, authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: verb, Path: path}})
}

// Resource is a kind of objects as RBAC names it, by its plural.
type Resource struct{ Group, Name string }

// MayUse reports whether a user may use a verb, such as list, on the objects of a resource in a namespace. An empty namespace means
// all namespaces.
func (c *Client) MayUse(ctx context.Context, u User, verb string, r Resource, namespace string) (bool, error) {
	return c.review(ctx, u, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: verb, Group: r.Group, Resource: r.Name, Namespace: namespace,
	}})
}

// review reports whether a user has a right, by a SubjectAccessReview.
func (c *Client) review(ctx context.Context, u User, right authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: right}
	review.Spec.User, review.Spec.UID, review.Spec.Groups, review.Spec.Extra = u.Name, u.UID, u.Groups, map[string]authorizationv1.ExtraValue{}
	for key, values := range u.Extra {
		review.Spec.Extra[key] = values
	}
	if err := c.authorization.Post().Resource("subjectaccessreviews").Body(review).Do(ctx).Into(review); err != nil {
		return false, fmt.Errorf("review access of %s: %w", u.Name, err)
	}
	return review.Status.Allowed, nil
}

// generator is the function that saves the generated files of clusters.
const generator = "bootstrap-talos"

// Manifests returns the generated files of a cluster by name. There may be none.
func (c *Client) Manifests(ctx context.Context, namespace, cluster string) (map[string]string, error) {
	list := &corev1.ConfigMapList{}
	options := &metav1.ListOptions{LabelSelector: v1alpha1.LabelClusterName + "=" + cluster + "," + v1alpha1.LabelManagedBy + "=" + generator}
	err := c.core.Get().Namespace(namespace).Resource("configmaps").VersionedParams(options, c.params).Do(ctx).Into(list)
	if err != nil {
		return nil, fmt.Errorf("read manifests of %s/%s: %w", namespace, cluster, err)
	}
	files := map[string]string{}
	for _, cm := range list.Items {
		for name, content := range cm.Data {
			files[name] = content
		}
	}
	return files, nil
}

// brokerName is the name of the Broker in the topology.
const brokerName = "vitistack"

// RenewLease sets the time at which a Lease was renewed. The Lease has to exist.
func (c *Client) RenewLease(ctx context.Context, namespace, name string, now time.Time) error {
	patch := `{"spec":{"renewTime":"` + now.UTC().Format(metav1.RFC3339Micro) + `"}}`
	err := c.core.Patch(types.MergePatchType).AbsPath("/apis/coordination.k8s.io/v1/namespaces", namespace, "leases", name).Body([]byte(patch)).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("renew Lease %s/%s, which is installed with the gateway: %w", namespace, name, err)
	}
	return nil
}

// BrokerURL returns the address in the status of the stack's Broker. It is empty without a Broker, or until the Broker has an address.
func (c *Client) BrokerURL(ctx context.Context, namespace string) (string, error) {
	raw, err := c.core.Get().AbsPath("/apis/eventing.knative.dev/v1/namespaces", namespace, "brokers", brokerName).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Broker %s/%s: %w", namespace, brokerName, err)
	}
	var broker struct {
		Status struct {
			Address struct {
				URL string `json:"url"`
			} `json:"address"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &broker); err != nil {
		return "", fmt.Errorf("read Broker %s/%s: %w", namespace, brokerName, err)
	}
	return broker.Status.Address.URL, nil
}

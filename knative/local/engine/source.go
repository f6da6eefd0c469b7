package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/eventing/pkg/adapter/apiserver"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"

	"github.com/vitistack/stack/knative/local/process"
)

const servedTimeout = 10 * time.Second

// source is an ApiServerSource with its process, Knative's own adapter.
type source struct {
	object   *sourcesv1.ApiServerSource
	programs *programs
	config   apiserver.Config
}

// newSource configures the adapter as Knative's controller does.
func newSource(object *sourcesv1.ApiServerSource, p *programs) (*source, error) {
	spec := object.Spec
	config := apiserver.Config{ResourceOwner: spec.ResourceOwner, EventMode: spec.EventMode, Filters: spec.Filters}
	switch selector := spec.NamespaceSelector; {
	case selector == nil:
		config.Namespaces = []string{object.Namespace}
	case len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0:
		config.Namespaces, config.AllNamespaces = []string{metav1.NamespaceAll}, true
	default:
		return nil, fmt.Errorf("read ApiServerSource %s/%s: the local engine knows namespaceSelector: {} (all) or none (its own)", object.Namespace, object.Name)
	}
	for _, r := range spec.Resources {
		gv, err := schema.ParseGroupVersion(r.APIVersion)
		if err != nil {
			return nil, fmt.Errorf("read ApiServerSource %s/%s: %w", object.Namespace, object.Name, err)
		}
		gvr, _ := meta.UnsafeGuessKindToResource(gv.WithKind(r.Kind)) // as Knative guesses
		watch := apiserver.ResourceWatch{GVR: gvr}
		if r.LabelSelector != nil {
			selector, err := metav1.LabelSelectorAsSelector(r.LabelSelector)
			if err != nil {
				return nil, fmt.Errorf("read the selector for %s of ApiServerSource %s/%s: %w", r.Kind, object.Namespace, object.Name, err)
			}
			watch.LabelSelector = selector.String()
		}
		config.Resources = append(config.Resources, watch)
	}
	return &source{object: object, programs: p, config: config}, nil
}

// check waits until the API server serves what the source watches, and returns an error if its ServiceAccount lacks rights. The adapter itself would end
// on the first, and only log the second.
func (s *source) check(ctx context.Context, c *cluster) error {
	user := "system:serviceaccount:" + s.object.Namespace + ":" + s.account()
	return each(s.config.Resources, func(watch apiserver.ResourceWatch) error {
		if err := s.awaitServed(ctx, c, watch.GVR); err != nil {
			return err
		}
		var errs []error
		for _, verb := range []string{"list", "watch"} {
			review, err := c.typed.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: s.config.Namespaces[0], Verb: verb, Group: watch.GVR.Group, Resource: watch.GVR.Resource,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("ask what %s may do: %w", user, err)
			}
			if !review.Status.Allowed {
				errs = append(errs, fmt.Errorf("start ApiServerSource %s/%s: %s may not %s %s; allow it in a ClusterRole", s.object.Namespace, s.object.Name, user, verb, watch.GVR.GroupResource()))
			}
		}
		return errors.Join(errs...)
	})
}

func (s *source) awaitServed(ctx context.Context, c *cluster, gvr schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	known := func(kind resource) bool { return kind.GroupVersionResource == gvr }
	if !c.any(known) {
		return fmt.Errorf("start ApiServerSource %s/%s: the API server has no %s; correct it, or install its CRD with --crds", s.object.Namespace, s.object.Name, gvr)
	}
	err := poll(ctx, func() bool {
		list, err := c.typed.Discovery().ServerResourcesForGroupVersion(gvr.GroupVersion().String())
		if err != nil {
			return false
		}
		for _, r := range list.APIResources {
			if r.Name == gvr.Resource {
				return true
			}
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("wait for the API server to serve %s: %w", gvr, err)
	}
	return nil
}

func (s *source) account() string {
	if name := s.object.Spec.ServiceAccountName; name != "" {
		return name
	}
	return "default"
}

// spec returns the process. It is ready when all watches are established.
func (s *source) spec(name string) process.Spec {
	ready := &readyPipe{}
	return process.Spec{
		Name: name, Kind: "component", Grace: controllerGrace, Ready: ready.wait,
		Command: func(ctx context.Context) (process.Command, error) {
			kubeconfig, err := s.programs.identities.kubeconfig(ctx, s.object.Namespace, s.account())
			if err != nil {
				return process.Command{}, err
			}
			env, err := s.environment()
			if err != nil {
				return process.Command{}, err
			}
			child, err := ready.open()
			if err != nil {
				return process.Command{}, err
			}
			watches := len(s.config.Resources) * len(s.config.Namespaces)
			return process.Command{
				Path: s.programs.options.Self, Dir: s.programs.state.dir, Env: flatten(env), Files: []*os.File{child},
				Args: []string{"apiserversource", "--kubeconfig=" + kubeconfig, "--watches=" + strconv.Itoa(watches)},
			}, nil
		},
	}
}

// environment returns what Knative's controller sets in the adapter's Deployment.
func (s *source) environment() (map[string]string, error) {
	sink, err := s.programs.addresses.resolveSink(s.object.Spec.Sink, s.object.Namespace)
	if err != nil {
		return nil, fmt.Errorf("resolve the sink of ApiServerSource %s/%s: %w", s.object.Namespace, s.object.Name, err)
	}
	config, err := json.Marshal(s.config)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration of ApiServerSource %s/%s: %w", s.object.Namespace, s.object.Name, err)
	}
	env := map[string]string{
		"K_SINK": sink.String(), "K_SOURCE_CONFIG": string(config), "NAME": s.object.Name, "NAMESPACE": s.object.Namespace,
		"SYSTEM_NAMESPACE": "knative-eventing", "METRICS_DOMAIN": "knative.dev/eventing",
		"KUBE_FEATURE_WatchListClient": "false",
	}
	if overrides := s.object.Spec.CloudEventOverrides; overrides != nil {
		text, err := json.Marshal(overrides)
		if err != nil {
			return nil, fmt.Errorf("encode the overrides of ApiServerSource %s/%s: %w", s.object.Namespace, s.object.Name, err)
		}
		env["K_CE_OVERRIDES"] = string(text)
	}
	return env, nil
}

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags select the management cluster and the namespace, as those of kubectl do.
type Flags struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
}

// NewFlags adds the flags of kubectl that select cluster, user and namespace.
func NewFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{rules: clientcmd.NewDefaultClientConfigLoadingRules(), overrides: &clientcmd.ConfigOverrides{}}
	set.StringVar(&f.rules.ExplicitPath, "kubeconfig", "", "kubeconfig of the management cluster. Default: $KUBECONFIG, or ~/.kube/config")
	clientcmd.BindOverrideFlags(f.overrides, set, clientcmd.RecommendedConfigOverrideFlags(""))
	return f
}

// Connection is a connection to a management cluster. It sends no request until it is used.
type Connection struct {
	dynamic.Interface
	Config *rest.Config
	// Namespace is the namespace of the flags, or of the context.
	Namespace string

	clock *clock
}

// Connect reads the kubeconfig.
func (f *Flags) Connect() (*Connection, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.rules, f.overrides)
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("there is no kubeconfig: set KUBECONFIG, or write --kubeconfig FILE, with the file of your management cluster")
	case clientcmd.IsContextNotFound(err):
		return nil, fmt.Errorf("read the kubeconfig: %w: kubectl config get-contexts lists the existing ones", err)
	case err != nil:
		return nil, fmt.Errorf("read the kubeconfig: %w: set KUBECONFIG, or write --kubeconfig and --context", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the namespace of the context: %w", err)
	}
	return NewConnection(config, namespace)
}

// Selection returns the flags with which the user has selected a context and a namespace, for the end of another command: " -n shop".
func (f *Flags) Selection() string {
	text := ""
	if f.rules.ExplicitPath != "" {
		text += " --kubeconfig " + f.rules.ExplicitPath
	}
	if f.overrides.CurrentContext != "" {
		text += " --context " + f.overrides.CurrentContext
	}
	if f.overrides.Context.Namespace != "" {
		text += " -n " + f.overrides.Context.Namespace
	}
	return text
}

// Contexts returns the names of the contexts of a kubeconfig or, if that is empty, of the one of the flags.
func (f *Flags) Contexts(kubeconfig string) []string {
	rules := *f.rules
	rules.ExplicitPath = cmp.Or(kubeconfig, rules.ExplicitPath)
	config, err := rules.Load()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(config.Contexts))
}

// ConnectTo reads another context, of a kubeconfig or, if that is empty, of the one of the flags.
func (f *Flags) ConnectTo(kubeconfig, context string) (*Connection, error) {
	rules := *f.rules
	if kubeconfig != "" {
		rules.ExplicitPath = kubeconfig
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the context %q of the other management cluster: %w: kubectl config get-contexts lists them", context, err)
	}
	return NewConnection(config, "")
}

// NewConnection returns a connection for a configuration.
func NewConnection(config *rest.Config, namespace string) (*Connection, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.UserAgent = -1, "kubectl-viti"
	config.WarningHandler = rest.NoWarnings{}
	answers := &clock{}
	config.Wrap(answers.wrap)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &Connection{Interface: client, Config: config, Namespace: namespace, clock: answers}, nil
}

// In returns the objects of a kind in a namespace, which is ignored for a kind of the whole cluster.
func (c *Connection) In(k Kind, namespace string) dynamic.ResourceInterface {
	if k.ClusterScoped {
		return c.Resource(k.GVR())
	}
	return c.Resource(k.GVR()).Namespace(namespace)
}

// Get returns an object of the namespace of the connection.
func (c *Connection) Get(ctx context.Context, k Kind, name string) (*unstructured.Unstructured, error) {
	u, err := c.In(k, c.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, c.Explain(err, k, name)
	}
	return u, nil
}

// Patch merges a change into an object. dryRun only validates it.
func (c *Connection) Patch(ctx context.Context, k Kind, name string, change []byte, dryRun bool) (*unstructured.Unstructured, error) {
	options := metav1.PatchOptions{FieldManager: "kubectl-viti"}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	u, err := c.In(k, c.Namespace).Patch(ctx, name, types.MergePatchType, change, options)
	if err != nil {
		return nil, c.Explain(err, k, name)
	}
	return u, nil
}

// explained is an error of the API server with a message that says what to do.
type explained struct {
	message string
	err     error
}

func (e explained) Error() string { return e.message }
func (e explained) Unwrap() error { return e.err }

// Explain returns an error of the API server about an object with what to do. The result wraps the
// error.
func (c *Connection) Explain(err error, k Kind, name string) error {
	where, others := " in namespace "+c.Namespace, "kubectl get "+k.Resource+" -A lists the existing ones, and -n selects their namespace"
	if k.ClusterScoped {
		where, others = "", "kubectl get "+k.Resource+" lists the existing ones"
	}
	var status apierrors.APIStatus
	var unanswered *url.Error
	message := ""
	switch {
	case apierrors.IsNotFound(err) && isOfObject(err):
		message = fmt.Sprintf("%s %q does not exist%s: %s", k.Name, name, where, others)
	case apierrors.IsNotFound(err):
		message = fmt.Sprintf("the cluster at %s does not know the kind %s: select the management cluster with --context, or install the stack there", c.Config.Host, k.Name)
	case apierrors.IsInvalid(err) && errors.As(err, &status) && status.Status().Details != nil && len(status.Status().Details.Causes) > 0:
		message = fmt.Sprintf("the API server refuses this for %s %q:", k.Name, name)
		for _, cause := range status.Status().Details.Causes {
			message += "\n  " + strings.TrimPrefix(cause.Field+": "+cause.Message, "<nil>: ")
		}
	case apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		message = fmt.Sprintf("%v: ask the platform team to bind the ClusterRole vitistack-edit, or vitistack-view to look, to you%s", err, where)
	case apierrors.IsUnauthorized(err):
		message = fmt.Sprintf("the API server at %s does not accept your credentials, which may have expired: log in again as for kubectl, or select others with --context or --kubeconfig", c.Config.Host)
	case errors.As(err, &unanswered):
		message = fmt.Sprintf("the API server at %s does not answer (%v): check that it runs, or select another cluster with --kubeconfig or --context", c.Config.Host, unanswered.Err)
	default:
		return err
	}
	return explained{message, err}
}

// isOfObject reports whether a NotFound error is about an object, and not about its kind.
func isOfObject(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

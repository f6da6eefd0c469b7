package component

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"

	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"
	"knative.dev/eventing/pkg/adapter/apiserver"
	"knative.dev/eventing/pkg/adapter/v2"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/logging"
)

// Source runs Knative's ApiServerSource adapter until ctx ends. Its configuration is in the environment, as Knative's controller sets it
// (K_SOURCE_CONFIG, K_SINK, NAME, NAMESPACE, ...). --watches is the number of its watches. When the last one is established, it writes one byte to
// ReadyFD, because only later changes to objects are events. KUBE_FEATURE_WatchListClient must be false, so that a watch starts where its list ended.
func Source(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("apiserversource", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "kubeconfig", "file with the address and credentials of the API server")
	watches := flags.Int("watches", 1, "number of watches that the configuration needs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", *kubeconfig, err)
	}
	config.QPS = -1
	config.Wrap((&watchCounter{want: *watches, ready: os.NewFile(ReadyFD, "ready")}).wrap)

	env := adapter.ConstructEnvOrDie(apiserver.NewEnvConfig)
	env.SetComponent("apiserversource")
	logger, err := zap.NewProduction()
	if err != nil {
		return fmt.Errorf("build the logger: %w", err)
	}
	ctx = logging.WithLogger(ctx, logger.Sugar())
	for _, inject := range injection.Default.GetClients() {
		ctx = inject(ctx, config)
	}
	client, err := adapter.NewClient(adapter.ClientConfig{Env: env})
	if err != nil {
		return fmt.Errorf("build the CloudEvents client: %w", err)
	}
	err = apiserver.NewAdapter(ctx, env, client).Start(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("run the adapter: %w", err)
	}
	return nil
}

// watchCounter counts the answered watches of the adapter, and calls back once when there are want different ones.
type watchCounter struct {
	next  http.RoundTripper
	want  int
	ready *os.File

	mu      sync.Mutex
	watches []string
}

func (c *watchCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return &watchCounter{next: next, want: c.want, ready: c.ready}
}

// RoundTrip implements http.RoundTripper.
func (c *watchCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK && request.URL.Query().Has("watch") {
		c.count(request.URL.Path + "?" + request.URL.Query().Get("labelSelector"))
	}
	return response, err
}

func (c *watchCounter) count(watch string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.watches, watch) {
		return
	}
	if c.watches = append(c.watches, watch); len(c.watches) == c.want {
		// Without the supervisor this process ends.
		_ = ready(c.ready)
	}
}

var _ http.RoundTripper = (*watchCounter)(nil)

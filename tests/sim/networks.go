package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/ipam"
	"github.com/vitistack/stack/tests/sim/nam"
	"github.com/vitistack/stack/tests/sim/netbox"
)

const (
	platform = "vitistack-system"
	// ipamName is the provider that the IPAM serves.
	ipamName = "tour-ipam"
	// namTakes is how long the manager needs for a segment. It is as long as for real ones.
	namTakes = 10 * time.Second
)

// serveNetworks serves the sources of networks, and configures the function provision-network for
// them: a Secret with addresses and tokens, and a Trigger that sends requests for networks to the
// IPAM. Segments are in 127.0.0.0/8, so that simulated machines in them can be reached.
func serveNetworks(ctx context.Context, config *rest.Config, at site, managers, libraries *faults.Plan, log *slog.Logger) error {
	token, err := keptToken(filepath.Join(at.state, "token"))
	if err != nil {
		return err
	}
	manager, err := nam.New(nam.Options{
		Token: token, Slow: namTakes, IPv4: netip.MustParsePrefix("127.65.0.0/16"), State: filepath.Join(at.state, "nam.json"), Faults: managers,
	})
	if err != nil {
		return err
	}
	library, err := netbox.New(netbox.Options{
		Token: token, State: filepath.Join(at.state, "netbox.json"), Faults: libraries,
		Parents: []netbox.Parent{
			{Prefix: netip.MustParsePrefix("127.66.0.0/16"), Role: "tenants", Site: "no-west-az1"},
			{Prefix: netip.MustParsePrefix("2001:db8:6600::/48"), Role: "tenants", Site: "no-west-az1"},
		},
		Groups: []netbox.Group{{Slug: "tenants", Min: 2000, Max: 2999}},
	})
	if err != nil {
		return err
	}
	books, err := nam.New(nam.Options{IPv4: netip.MustParsePrefix("127.67.0.0/16"), State: filepath.Join(at.state, "ipam.json")})
	if err != nil {
		return err
	}
	corporate := ipam.Server{Books: books, Log: log.With("simulator", "ipam"), Gateway: os.Getenv("GATEWAY_URL"), Token: tokens(config)}
	var urls [3]string
	names := []string{"nam", "netbox", "ipam"}
	for i, handler := range []http.Handler{manager, library, corporate} {
		if urls[i], err = at.serve(ctx, names[i], handler); err != nil {
			return err
		}
	}
	for i, what := range names[:2] {
		if err := note(what, urls[i]+" (simulated)"); err != nil {
			return err
		}
	}
	return configure(ctx, config, urls[0], urls[1], urls[2], token)
}

// keptToken returns a token that is generated at the first start.
func keptToken(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err == nil && len(content) > 0 {
		return strings.TrimSpace(string(content)), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := rand.Text()
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the token: %w", err)
	}
	return token, nil
}

// configure writes the addresses of all servers into the configuration of provision-network and the
// Broker.
func configure(ctx context.Context, config *rest.Config, nam, netbox, ipam, token string) error {
	secret := map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{
		"NAM_URL": nam + "/v1", "NAM_TOKEN": token, "NETBOX_URL": netbox, "NETBOX_TOKEN": token,
	}}
	trigger := map[string]any{"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "spec": map[string]any{
		"broker": "vitistack",
		"filters": []any{
			map[string]any{"exact": map[string]any{"provider": ipamName}},
			map[string]any{"any": []any{
				map[string]any{"exact": map[string]any{"type": events.TypeNetworkRequested}},
				map[string]any{"exact": map[string]any{"type": events.TypeNetworkReleased}},
			}},
		},
		"subscriber": map[string]any{"uri": ipam},
	}}
	account := map[string]any{"apiVersion": "v1", "kind": "ServiceAccount"}
	role := map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []any{
		map[string]any{"nonResourceURLs": []any{"/vitistack/api/v1/events"}, "verbs": []any{"post"}},
	}}
	binding := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ipamName},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": platform, "name": ipamName}},
	}
	return errors.Join(
		apply(ctx, config, accounts, named(ipamName, account)),
		apply(ctx, config, roles, clusterWide(ipamName, role)),
		apply(ctx, config, bindings, clusterWide(ipamName, binding)),
		apply(ctx, config, secrets, named("provision-network", secret)),
		apply(ctx, config, triggers, named(ipamName, trigger)),
	)
}

// Resources that configure functions and the Broker.
var (
	secrets  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	accounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	roles    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	bindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	triggers = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"}
)

func apply(ctx context.Context, config *rest.Config, resource schema.GroupVersionResource, object map[string]any) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	u := &unstructured.Unstructured{Object: object}
	options := metav1.ApplyOptions{FieldManager: "sim", Force: true}
	if _, err := client.Resource(resource).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, options); err != nil {
		return fmt.Errorf("configure %s: %w", u.GetName(), err)
	}
	return nil
}

func clusterWide(name string, object map[string]any) map[string]any {
	object["metadata"] = map[string]any{"name": name}
	return object
}

// tokens returns a function that requests a token for the IPAM's service account from the API server.
// The gateway authenticates the IPAM with it.
func tokens(config *rest.Config) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return "", fmt.Errorf("connect to the API server: %w", err)
		}
		request := &unstructured.Unstructured{Object: named(ipamName, map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}})}
		answer, err := client.Resource(accounts).Namespace(platform).Create(ctx, request, metav1.CreateOptions{}, "token")
		if err != nil {
			return "", fmt.Errorf("get a token of the IPAM: %w", err)
		}
		token, _, err := unstructured.NestedString(answer.Object, "status", "token")
		if err != nil {
			return "", fmt.Errorf("read the token of the IPAM: %w", err)
		}
		return token, nil
	}
}

func named(name string, object map[string]any) map[string]any {
	object["metadata"] = map[string]any{"name": name, "namespace": platform}
	return object
}

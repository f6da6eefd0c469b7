package kubernetes

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/lab"
)

//go:embed manifests/dns.yaml
var dnsManifest string

// Cluster is a node in a lab, with the repository and the commands of a user.
type Cluster struct {
	*Node
	T    *testing.T
	Root string // the repository

	start time.Time
}

// New creates a cluster whose programs are in some folders. Commands of the test find programs there, and use the kubeconfig
// of the administrator. Nothing runs yet.
func New(t *testing.T, l lab.Lab, programs ...string) *Cluster {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewNode(l, programs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", strings.Join(append(programs, os.Getenv("PATH")), ":"))
	t.Setenv("KUBECONFIG", m.Kubeconfig())
	t.Setenv("GOPROXY", "off") // the lab has no Internet access
	return &Cluster{Node: m, T: t, Root: root, start: time.Now()}
}

// In returns the cluster for a subtest, and prints its state if the subtest fails.
func (c *Cluster) In(t *testing.T) *Cluster {
	copied := *c
	copied.T, copied.start = t, time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			copied.printState()
		}
	})
	return &copied
}

// Boot starts the control plane and the node, and waits until pods resolve names. The registry has to serve pause and
// coredns. reached is called with the name of each step and its time.
func (c *Cluster) Boot(reached func(step string, took time.Duration)) {
	c.T.Helper()
	must := func(err error) {
		c.T.Helper()
		if err != nil {
			c.T.Fatal(err)
		}
	}
	must(c.Start(ControlPlane[:2]...))
	c.Await("the API server is ready", time.Minute, func(ctx context.Context) error {
		_, err := c.Run(ctx, "", "kubectl", "get", "--raw", "/readyz")
		return err
	})
	reached("API server ready", c.Step("the API server is ready"))
	must(c.Start(ControlPlane[2:]...))
	must(c.Start(Worker...))
	c.Apply(WithAddresses(dnsManifest))
	c.Await("the node is Ready", 2*time.Minute, func(ctx context.Context) error { return c.RequireReady(ctx, "Ready", "nodes") })
	reached("node Ready", c.Step("the node is Ready"))
	c.Kubectl("wait", "-n", "kube-system", "deployment/coredns", "--for=condition=Available", "--timeout=180s")
	reached("CoreDNS available", c.Step("CoreDNS is available"))
}

// WithAddresses inserts the addresses of registry and DNS into a manifest.
func WithAddresses(text string) string {
	return strings.NewReplacer("REGISTRY", Registry, "DNS_SERVICE", dnsService).Replace(text)
}

// ServeRegistry serves images at the address Registry until the test ends.
func (c *Cluster) ServeRegistry(images http.Handler) {
	c.T.Helper()
	c.ServeAt(Registry, images)
}

// ServeAt serves HTTP at an address of the node until the test ends.
func (c *Cluster) ServeAt(address string, handler http.Handler) {
	c.T.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		c.T.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	c.T.Cleanup(func() { _ = server.Close() })
}

// Restart begins the measurement of the next step.
func (c *Cluster) Restart() { c.start = time.Now() }

// Step prints what has been reached, and returns the time since the last step.
func (c *Cluster) Step(format string, args ...any) time.Duration {
	c.T.Helper()
	took := time.Since(c.start)
	c.T.Logf("%6.1f s  %s", took.Seconds(), fmt.Sprintf(format, args...))
	c.Restart()
	return took
}

// Run runs a command in the repository, and returns its standard output.
func (c *Cluster) Run(ctx context.Context, input, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stdin = c.Root, strings.NewReader(input)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, &problems)
	}
	return out.String(), nil
}

// Must runs a command that has to succeed within a time, and returns its standard output.
func (c *Cluster) Must(timeout time.Duration, name string, args ...string) string {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), timeout)
	defer cancel()
	out, err := c.Run(ctx, "", name, args...)
	if err != nil {
		c.T.Fatal(err)
	}
	return out
}

// Kubectl runs kubectl, and returns its standard output.
func (c *Cluster) Kubectl(args ...string) string {
	c.T.Helper()
	return c.Must(5*time.Minute, "kubectl", args...)
}

// Apply applies a manifest, again and again until the API server accepts it: its webhooks may start.
func (c *Cluster) Apply(manifest string) {
	c.T.Helper()
	c.Await("apply", 2*time.Minute, func(ctx context.Context) error {
		_, err := c.Run(ctx, manifest, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err
	})
}

// Await waits until done returns nil, and fails the test with its last error after a timeout.
func (c *Cluster) Await(what string, timeout time.Duration, done func(context.Context) error) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), timeout)
	defer cancel()
	last := errors.New("never tried")
	for ctx.Err() == nil {
		err := done(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
	c.T.Fatalf("%s: not after %s: %v", what, timeout, last)
}

// Object is what the tests read of any object.
type Object struct {
	Kind     string
	Metadata struct {
		Name, Namespace, DeletionTimestamp string
		Labels                             map[string]string
		Finalizers                         []string
	}
	Status struct {
		Phase, ProvisioningPhase string
		Conditions               []struct{ Type, Status, Reason, Message string }
		ContainerStatuses        []struct {
			Name         string
			RestartCount int
			State        struct {
				Waiting *struct{ Reason, Message string }
			}
		}
	}
}

// List returns the objects that kubectl get prints for arguments.
func (c *Cluster) List(ctx context.Context, args ...string) ([]Object, error) {
	out, err := c.Run(ctx, "", "kubectl", append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []Object }
	return list.Items, json.Unmarshal([]byte(out), &list)
}

// Condition returns the status of a condition, and its reason with its message.
func (o Object) Condition(kind string) (status, why string) {
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c.Status, c.Reason + ": " + c.Message
		}
	}
	return "", "it has no condition " + kind
}

// RequireReady returns an error that names the objects whose condition is not True.
func (c *Cluster) RequireReady(ctx context.Context, condition string, args ...string) error {
	all, err := c.List(ctx, args...)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("there is nothing of %s", strings.Join(args, " "))
	}
	var errs []error
	for _, o := range all {
		if status, why := o.Condition(condition); status != "True" {
			errs = append(errs, fmt.Errorf("%s %s/%s: %s", o.Kind, o.Metadata.Namespace, o.Metadata.Name, why))
		}
	}
	return errors.Join(errs...)
}

// printState prints what is not ready, with the end of the logs.
func (c *Cluster) printState() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c.Show(ctx, "kubectl", "get", "pods", "-A", "-o", "wide")
	c.Show(ctx, "kubectl", "get", "events", "-A", "--field-selector", "type=Warning", "--sort-by=.lastTimestamp")
	all, _ := c.List(ctx, "pods", "-A")
	for _, pod := range all {
		if ready, _ := pod.Condition("Ready"); ready != "True" && pod.Status.Phase != "Succeeded" {
			c.Show(ctx, "kubectl", "logs", "--all-containers", "--tail=15", "-n", pod.Metadata.Namespace, pod.Metadata.Name)
		}
	}
	for name, s := range c.Services {
		if all == nil {
			c.T.Logf("%s\n%s", name, s.Tail())
		}
	}
}

// Show prints the output of a command.
func (c *Cluster) Show(ctx context.Context, name string, args ...string) {
	out, err := c.Run(ctx, "", name, args...)
	if err != nil {
		out += err.Error()
	}
	c.T.Logf("%s %s\n%s", name, strings.Join(args, " "), out)
}

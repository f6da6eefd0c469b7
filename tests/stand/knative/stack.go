package knative

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/kubernetes"
)

const (
	// System is the namespace of the stack.
	System = "vitistack-system"
	// Repository is the repository of the stack's images.
	Repository = kubernetes.Registry + "/vitistack"
	// idleTimeout is the longest time until no function has a pod: the interval of the checks of MachineProviders, the
	// window of the revisions, and the grace periods of Knative.
	idleTimeout = 6 * time.Minute

	charts = "oci://" + kubernetes.Registry + "/charts"
)

// Functions are the Knative Services of the stack.
var Functions = []string{"allocate-ip", "bootstrap-talos", "create-vm", "etcd-backup", "kea-reserve", "provision-network", "resync"}

var digest = regexp.MustCompile(`(?m)^Digest: (sha256:[0-9a-f]+)$`)

// InstallStack builds images and chart as a release does, installs them by digest with values in YAML as a user does, and runs helm test. The
// namespace enforces Pod Security restricted. It calls reached with the name of each step and its time.
func (c *Cluster) InstallStack(values string, reached func(step string, took time.Duration)) {
	c.T.Helper()
	file := c.ValuesFile()
	// The release writes the digests into the chart: make pin.
	text := "image: {repository: " + Repository + ", digests: {" + strings.Join(c.pushImages(reached), ", ") + "}}\n" + values
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.T.Fatal(err)
	}
	chart := c.pushChart()
	c.Kubectl("create", "namespace", System)
	c.Kubectl("label", "namespace", System, "pod-security.kubernetes.io/enforce=restricted")
	start := time.Now()
	c.Must(5*time.Minute, "helm", "install", "vitistack", chart, "--plain-http", "--namespace", System, "--values", file)
	c.Await("all is Ready", 5*time.Minute, c.RequireInstalled)
	reached("helm install, until everything is Ready", time.Since(start))
	c.Step("helm install: everything is Ready")
	c.RequireNoRestarts()
	c.RequireNoneRefused()
	c.Must(5*time.Minute, "helm", "test", "vitistack", "--namespace", System)
	reached("helm test", c.Step("helm test passes"))
}

// pushImages builds and pushes the images of the stack, and returns a line of YAML with the digest of each.
func (c *Cluster) pushImages(reached func(step string, took time.Duration)) (digests []string) {
	c.T.Helper()
	out := c.Must(30*time.Minute, "make", "--silent", "images", "IMG="+Repository+":v1", "VERSION=v1", "PLATFORMS=linux/"+runtime.GOARCH)
	for line := range strings.Lines(out) {
		if name, sum, ok := strings.Cut(strings.TrimSpace(line), "@"); ok {
			digests = append(digests, name+": "+sum)
		}
	}
	if len(digests) <= len(Functions) {
		c.T.Fatalf("make images printed the digests of %d images: %v", len(digests), digests)
	}
	reached("make images, with a warm cache, for one platform", c.Step("%d images are built and pushed", len(digests)))
	return digests
}

// ChartFile returns the file of the chart that InstallStack installs.
func (c *Cluster) ChartFile() string { return c.Path("vitistack-1.0.0.tgz") }

// ValuesFile returns the file of the values with which InstallStack installs the chart.
func (c *Cluster) ValuesFile() string { return c.Path("values.yaml") }

// pushChart packages and pushes the chart, and returns its reference by digest.
func (c *Cluster) pushChart() string {
	c.T.Helper()
	c.Must(time.Minute, "helm", "package", "charts/vitistack", "--version", "1.0.0", "--app-version", "v1", "--destination", c.Path())
	out, err := c.Run(c.T.Context(), "", "sh", "-c", "helm push --plain-http "+c.ChartFile()+" "+charts+" 2>&1")
	found := digest.FindStringSubmatch(out)
	if err != nil || found == nil {
		c.T.Fatalf("push the chart: %v: %s", err, out)
	}
	return charts + "/vitistack@" + found[1]
}

// RequireInstalled returns an error that names what of the stack is not Ready.
func (c *Cluster) RequireInstalled(ctx context.Context) error {
	services, err := c.List(ctx, "ksvc", "-n", System)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range services {
		names = append(names, s.Metadata.Name)
	}
	if slices.Sort(names); !slices.Equal(names, Functions) {
		return fmt.Errorf("the Services are %v, want %v", names, Functions)
	}
	return errors.Join(
		c.RequireReady(ctx, "Ready", "ksvc,broker,trigger,apiserversource,pingsource,sinkbinding", "-n", System),
		c.RequireReady(ctx, "Available", "deployment", "-n", System),
	)
}

// RequireNoRestarts fails the test if a container of the stack or of Knative was restarted.
func (c *Cluster) RequireNoRestarts() {
	c.T.Helper()
	pods, err := c.List(c.T.Context(), "pods", "-A")
	if err != nil {
		c.T.Fatal(err)
	}
	for _, pod := range pods {
		for _, container := range pod.Status.ContainerStatuses {
			if container.RestartCount > 0 {
				c.T.Errorf("container %s of pod %s/%s was restarted %d times", container.Name, pod.Metadata.Namespace, pod.Metadata.Name, container.RestartCount)
				c.T.Log(c.Run(c.T.Context(), "", "kubectl", "logs", "--previous", "--tail=10", "-n", pod.Metadata.Namespace, pod.Metadata.Name, "-c", container.Name))
			}
		}
	}
}

// RequireNoneRefused fails the test if the API server has refused a pod of the stack: Pod Security, quota, or RBAC.
func (c *Cluster) RequireNoneRefused() {
	c.T.Helper()
	out := c.Kubectl("get", "events", "-n", System, "--field-selector", "reason=FailedCreate", "-o", "jsonpath={range .items[*]}{.message}{'\\n'}{end}")
	if strings.TrimSpace(out) != "" {
		c.T.Errorf("the API server refused pods:\n%s", out)
	}
}

// AwaitZero waits until no function has a pod that takes requests.
func (c *Cluster) AwaitZero() {
	c.T.Helper()
	c.Await("no function has a pod", idleTimeout, func(ctx context.Context) error {
		pods, err := c.List(ctx, "pods", "-n", System, "-l", "serving.knative.dev/service")
		if err != nil {
			return err
		}
		var running []string
		for _, pod := range pods {
			if pod.Metadata.DeletionTimestamp == "" {
				running = append(running, pod.Metadata.Labels["serving.knative.dev/service"])
			}
		}
		if len(running) > 0 {
			return fmt.Errorf("these have one: %s", strings.Join(running, ", "))
		}
		return nil
	})
}

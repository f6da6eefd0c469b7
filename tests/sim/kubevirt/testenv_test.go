package kubevirt_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/sim/kubevirt/controller"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/judge"
)

func TestMain(m *testing.M) {
	if virtController != "" {
		var err error
		if controllerFolder, err = os.MkdirTemp("", "virt-controller-"); err != nil {
			log.Fatal(err)
		}
	}
	code := apiserver.Run(m)
	stopController()
	os.Exit(code)
}

// virtController is the program of the real virt-controller, or empty if the simulator plays its part.
var virtController = os.Getenv("VITI_VIRT_CONTROLLER")

var (
	prepareController, runController sync.Once
	stopController                   = func() {}
	controllerFolder                 string
)

// onlySimulated skips what the real virt-controller does not do, for a reason.
func onlySimulated(t *testing.T, reason string) {
	t.Helper()
	if virtController != "" {
		t.Skip("not with the real virt-controller: " + reason)
	}
}

// installController installs the definitions of the real virt-controller, if it was requested.
func installController(t *testing.T, config *rest.Config) {
	t.Helper()
	prepareController.Do(func() {
		if virtController == "" {
			return
		}
		if err := controller.Install(t.Context(), config, virtController); err != nil {
			t.Fatal(err)
		}
	})
}

// startController starts the real virt-controller for all tests, if it was requested. All definitions must be installed.
// Its log stays in controllerFolder.
func startController(t *testing.T, config *rest.Config) {
	t.Helper()
	runController.Do(func() {
		if virtController == "" {
			return
		}
		var err error
		if stopController, err = controller.Start(config, virtController, controllerFolder); err != nil {
			t.Fatal(err)
		}
	})
}

// patience bounds each wait. It is long, because the machine may be busy.
const patience = 60 * time.Second

var (
	vms       = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}
	vmis      = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}
	dvs       = schema.GroupVersionResource{Group: "cdi.kubevirt.io", Version: "v1beta1", Resource: "datavolumes"}
	nads      = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
	pvcs      = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	pvs       = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	secrets   = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	nodes     = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	k8sEvents = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// cluster is an API server with a simulator for one of its namespaces.
type cluster struct {
	t         *testing.T
	config    *rest.Config
	client    *dynamic.DynamicClient
	namespace string
	guests    *guests
	writes    *atomic.Int64
	options   kubevirt.Options
	stop      func()
}

// start starts a cluster. It sets the namespace, the guests and, if there are none, hypervisors with
// unique names, and keeps the other options.
func start(t *testing.T, options kubevirt.Options) *cluster {
	t.Helper()
	server := apiserver.Start(t)
	config := server.Config()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		t: t, config: config, client: client, namespace: server.Namespace(t),
		guests: newGuests(), writes: &atomic.Int64{},
	}
	options.Namespace = c.namespace
	options.RealController = virtController != ""
	options.Guests = c.guests
	options.Judge = judge.Start(t)
	if options.Log == nil {
		options.Log = slog.New(slog.NewTextHandler(testLog{t}, nil))
	}
	c.options = options
	installController(t, config)
	c.run()
	startController(t, config)
	t.Cleanup(func() { c.stop() })
	return c
}

// run starts a simulator, and returns once the API server asks its webhooks.
func (c *cluster) run() {
	c.t.Helper()
	config := rest.CopyConfig(c.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, c.writes} })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	options := c.options
	options.Ready = func() { close(ready) }
	go func() { ended <- kubevirt.New(config, options).Run(ctx) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		c.t.Fatalf("the simulator ended: %v", err)
	case <-time.After(patience):
		cancel()
		c.t.Fatal("the simulator is not ready in time")
	}
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the simulator ended with %v, want nil after its context ended", err)
		}
	})
	if c.options.Plan == nil { // a plan counts the requests of the test alone
		c.awaitWebhook(mistyped(), "virtualmachines-mutator.kubevirt.io")
		c.awaitWebhook(fromFTP(), "datavolume-validate.cdi.kubevirt.io")
	}
}

// awaitWebhook waits until a webhook rejects an object that it has to reject. The API server reads registrations some time after they are stored: those of
// mutating and of validating webhooks each in their order.
func (c *cluster) awaitWebhook(rejected, webhook string) {
	c.t.Helper()
	want := fmt.Sprintf("admission webhook %q denied the request", webhook)
	var err error
	c.until(func() bool {
		err = c.create(rejected, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), want)
	}, func() string {
		return fmt.Sprintf("the webhook %s does not reject its object in time: %v", webhook, err)
	})
}

// until waits for done, and fails the test with a message if that does not become true in time.
func (c *cluster) until(done func() bool, message func() string) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); !done(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatal(message())
		}
	}
}

// restart replaces the simulator as after a crash: guests are stopped, memory is lost.
func (c *cluster) restart() {
	c.t.Helper()
	c.stop()
	c.guests.crash()
	c.run()
}

// apply creates the objects of a manifest in the cluster's namespace. It replaces {ns} by the
// namespace.
func (c *cluster) apply(manifest string) {
	c.t.Helper()
	if err := c.try(manifest); err != nil {
		c.t.Fatalf("create: %v", err)
	}
}

func (c *cluster) try(manifest string) error {
	return c.create(manifest, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
}

func (c *cluster) create(manifest string, options metav1.CreateOptions) error {
	for _, doc := range strings.Split(strings.ReplaceAll(manifest, "{ns}", c.namespace), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			return fmt.Errorf("decode the manifest: %w\n%s", err, doc)
		}
		gvk := o.GroupVersionKind()
		resource := map[string]schema.GroupVersionResource{
			"VirtualMachine": vms, "VirtualMachineInstance": vmis, "DataVolume": dvs,
			"NetworkAttachmentDefinition": nads, "PersistentVolumeClaim": pvcs, "Secret": secrets,
		}[gvk.Kind]
		if _, err := c.client.Resource(resource).Namespace(c.namespace).Create(c.t.Context(), &o, options); err != nil {
			return err
		}
	}
	return nil
}

// in returns the resource's client for the namespace, or for the cluster.
func (c *cluster) in(r schema.GroupVersionResource) dynamic.ResourceInterface {
	if r == pvs || r == nodes {
		return c.client.Resource(r)
	}
	return c.client.Resource(r).Namespace(c.namespace)
}

func (c *cluster) patch(r schema.GroupVersionResource, name, patch string, subresource ...string) {
	c.t.Helper()
	_, err := c.in(r).Patch(c.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
	if err != nil {
		c.t.Fatalf("patch %s %s: %v", r.Resource, name, err)
	}
}

func (c *cluster) delete(r schema.GroupVersionResource, name string) {
	c.t.Helper()
	if err := c.in(r).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatalf("delete %s %s: %v", r.Resource, name, err)
	}
}

// get reads an object into its type. It is nil if it does not exist.
func get[T any](c *cluster, r schema.GroupVersionResource, name string) *T {
	c.t.Helper()
	o, err := c.in(r).Get(c.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatalf("get %s %s: %v", r.Resource, name, err)
	}
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed); err != nil {
		c.t.Fatalf("decode %s %s: %v", r.Resource, name, err)
	}
	return &typed
}

// eventually returns the object once the condition accepts it. The condition gets nil while it does
// not exist.
func eventually[T any](c *cluster, r schema.GroupVersionResource, name, what string, holds func(*T) bool) *T {
	c.t.Helper()
	var o *T
	c.until(func() bool {
		o = get[T](c, r, name)
		return holds(o)
	}, func() string {
		text, _ := yaml.Marshal(o)
		return fmt.Sprintf("%s %s: timed out waiting until %s; it is\n%s", r.Resource, name, what, text)
	})
	return o
}

func (c *cluster) vm(name, what string, holds func(*virtv1.VirtualMachine) bool) *virtv1.VirtualMachine {
	c.t.Helper()
	return eventually(c, vms, name, what, func(vm *virtv1.VirtualMachine) bool { return vm != nil && holds(vm) })
}

func (c *cluster) status(name string, want virtv1.VirtualMachinePrintableStatus) *virtv1.VirtualMachine {
	c.t.Helper()
	return c.vm(name, "its status is "+string(want), func(vm *virtv1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == want
	})
}

func (c *cluster) vmi(name, what string, holds func(*virtv1.VirtualMachineInstance) bool) *virtv1.VirtualMachineInstance {
	c.t.Helper()
	return eventually(c, vmis, name, what, func(vmi *virtv1.VirtualMachineInstance) bool { return vmi != nil && holds(vmi) })
}

func (c *cluster) dv(name, what string, holds func(*cdiv1.DataVolume) bool) *cdiv1.DataVolume {
	c.t.Helper()
	return eventually(c, dvs, name, what, func(dv *cdiv1.DataVolume) bool { return dv != nil && holds(dv) })
}

func (c *cluster) claim(name, what string, holds func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	c.t.Helper()
	return eventually(c, pvcs, name, what, func(p *corev1.PersistentVolumeClaim) bool { return p != nil && holds(p) })
}

// gone waits until an object does not exist.
func (c *cluster) gone(r schema.GroupVersionResource, name string) {
	c.t.Helper()
	eventually(c, r, name, "it is deleted", func(o *metav1.PartialObjectMetadata) bool { return o == nil })
}

// volumesLeft returns the volumes of claims in the namespace.
func (c *cluster) volumesLeft() []string {
	c.t.Helper()
	list, err := c.in(pvs).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		if ns, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "namespace"); ns == c.namespace {
			names = append(names, o.GetName())
		}
	}
	return names
}

// guests records the calls of the simulator.
type guests struct {
	mu        sync.Mutex
	on        map[string]kubevirt.Guest
	powerOns  map[string]int
	destroyed map[string]bool
	refuse    error // the next PowerOn returns it
}

func newGuests() *guests {
	return &guests{on: map[string]kubevirt.Guest{}, powerOns: map[string]int{}, destroyed: map[string]bool{}}
}

func (g *guests) PowerOn(guest kubevirt.Guest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refuse; err != nil {
		g.refuse = nil
		return err
	}
	g.on[guest.ID] = guest
	g.powerOns[guest.ID]++
	return nil
}

func (g *guests) PowerOff(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.on, id)
	return nil
}

func (g *guests) Destroy(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, on := g.on[id]; on {
		return fmt.Errorf("guest %s is destroyed while it runs", id)
	}
	g.destroyed[id] = true
	return nil
}

func (g *guests) crash() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = map[string]kubevirt.Guest{}
}

// named returns the guest of a machine if it runs.
func (g *guests) named(name string) (kubevirt.Guest, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, guest := range g.on {
		if guest.Name == name {
			return guest, true
		}
	}
	return kubevirt.Guest{}, false
}

func (g *guests) isDestroyed(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.destroyed[id]
}

// counting counts the requests that write.
type counting struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}

// testLog forwards the simulator's log while the test runs.
type testLog struct{ t *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

// with returns the cluster for a subtest.
func (c *cluster) with(t *testing.T) *cluster {
	sub := *c
	sub.t = t
	return &sub
}

// event waits for a warning with a reason whose message contains a text.
func (c *cluster) event(reason, text string) {
	c.t.Helper()
	var last []string
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		list, err := c.in(k8sEvents).List(c.t.Context(), metav1.ListOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		last = nil
		for _, o := range list.Items {
			r, _, _ := unstructured.NestedString(o.Object, "reason")
			m, _, _ := unstructured.NestedString(o.Object, "message")
			if r == reason && strings.Contains(m, text) {
				return
			}
			last = append(last, r+": "+m)
		}
		<-time.After(20 * time.Millisecond)
	}
	c.t.Fatalf("no event %s with %q; there are %q", reason, text, last)
}

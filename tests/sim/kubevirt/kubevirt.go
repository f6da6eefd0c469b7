package kubevirt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/kubevirt/judge"
)

// Options are the options of the simulated cluster. The zero value is a cluster of three hypervisors
// with two storage classes, without delays.
type Options struct {
	// Plan is the fault plan. The package documentation has the operations. Default: no faults.
	Plan *faults.Plan
	// Log receives the log of the cluster's controllers. Default: none.
	Log *slog.Logger
	// Times are the durations of steps.
	Times Times
	// Hypervisors are created as Nodes if they do not exist. Default: three.
	Hypervisors []Hypervisor
	// StorageClasses are created if they do not exist, and provisioned. Default: "standard", which is
	// the default class, and "fast-ssd".
	StorageClasses []StorageClass
	// PodNetwork is the range of pod addresses. Default: 10.244.0.0/16.
	PodNetwork netip.Prefix
	// Guests starts and stops the guests. Default: guests that do nothing.
	Guests Guests
	// DHCP answers a guest that requests a lease on a network, which is "namespace/name" of a
	// NetworkAttachmentDefinition. A guest without a lease retries. It must return soon. Default: no
	// network has a DHCP server.
	DHCP func(mac, network string) (address netip.Prefix, gateway netip.Addr, ok bool)
	// Namespace limits the simulator and its admission to one namespace. Nodes and storage classes
	// always belong to the cluster. Default: all namespaces.
	Namespace string
	// Ready is called once, when admission serves and the caches are filled. It may be nil.
	Ready func()
	// NoVolumeHotplug disables the feature gate DeclarativeHotplugVolumes: a volume that is added to a
	// VirtualMachine takes effect in its next instance only, and no condition reports that.
	NoVolumeHotplug bool
	// LiveMigrate is whether spec.workloadUpdateStrategy.workloadUpdateMethods of KubeVirt has LiveMigrate, so that it migrates
	// an instance whose sockets or memory have changed. Default: it does not, as the released resource, and the change waits.
	LiveMigrate bool
	// Judge also has to allow each machine and instance, and writes the cloud-init data of guests. Default: the
	// simulator's own rules decide alone.
	Judge *judge.Judge
	// RealController is whether the real virt-controller works on the API server. The simulator then
	// leaves machines, and instances without a node, to it, and runs the pods that it creates.
	RealController bool
	// WebhookAddress is where admission listens. Default: a free loopback port.
	WebhookAddress string
}

// Times are the durations of the steps in the life of a machine. A step without a duration is not
// stored: an instance with zero Times goes from Pending to Running in one write, and its
// phaseTransitionTimestamps list the phases between.
type Times struct {
	// Provisioning is the time from the creation of a claim to its volume.
	Provisioning time.Duration
	// Importing is the time to copy an image into a volume.
	Importing time.Duration
	// Scheduling is the time from the creation of an instance to its node.
	Scheduling time.Duration
	// Starting is the time from the node to the running domain.
	Starting time.Duration
	// Booting is the time from the running domain to the guest's agent and addresses.
	Booting time.Duration
	// Stopping is the time from the request to stop to the stopped domain.
	Stopping time.Duration
	// CrashBackoff is the first delay before a machine that failed to start is started again. Default:
	// KubeVirt's 10 seconds.
	CrashBackoff time.Duration
}

// Hypervisor is a node that can run virtual machines.
type Hypervisor struct {
	Name string
	// CPU and Memory are quantities, for example "32" and "128Gi".
	CPU, Memory string
}

// StorageClass is a class whose claims the simulator provisions.
type StorageClass struct {
	Name string
	// Default makes it the class of claims without a class.
	Default bool
	// WaitForFirstConsumer delays the volume until a machine needs it.
	WaitForFirstConsumer bool
	// Expandable permits claims to grow.
	Expandable bool
}

func (o Options) withDefaults() Options {
	if o.Plan == nil {
		o.Plan = &faults.Plan{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Hypervisors == nil {
		for _, name := range []string{"hypervisor-1", "hypervisor-2", "hypervisor-3"} {
			o.Hypervisors = append(o.Hypervisors, Hypervisor{Name: name, CPU: "64", Memory: "512Gi"})
		}
	}
	if o.StorageClasses == nil {
		o.StorageClasses = []StorageClass{
			{Name: "standard", Default: true, Expandable: true},
			{Name: "fast-ssd", Expandable: true},
		}
	}
	if !o.PodNetwork.IsValid() {
		o.PodNetwork = netip.MustParsePrefix("10.244.0.0/16")
	}
	if o.Guests == nil {
		o.Guests = noGuests{}
	}
	if o.Times.CrashBackoff == 0 {
		o.Times.CrashBackoff = 10 * time.Second
	}
	return o
}

// SimulatedTaint is the key of the taint of simulated hypervisors.
const SimulatedTaint = "vitistack.io/simulated"

// Simulator is the control plane of KubeVirt, CDI and a storage provisioner for one API server. Its
// whole state is in the API: a new Simulator continues where a killed one stopped.
type Simulator struct {
	config  *rest.Config
	options Options
	log     *slog.Logger

	api    *api
	queue  *queue
	pace   *pace
	hosts  *hosts
	power  *power
	events *recorder
}

// New returns a simulator for the API server of config, whose user must be a cluster administrator. It
// does nothing before Run.
func New(config *rest.Config, options Options) *Simulator {
	options = options.withDefaults()
	return &Simulator{config: config, options: options, log: options.Log}
}

// Run installs the cluster's objects, serves admission, and works until ctx ends or an error occurs
// that a restart may fix. It must be called once. It leaves all objects behind. It returns nil once
// ctx has ended.
func (s *Simulator) Run(ctx context.Context) error {
	err := s.run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *Simulator) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	crds, err := definitions()
	if err != nil {
		return err
	}
	if err := InstallDefinitions(ctx, s.config, crds); err != nil {
		return fmt.Errorf("install the definitions: %w", err)
	}
	api, err := newAPI(s.config, s.options.Namespace)
	if err != nil {
		return err
	}
	s.api = api
	s.queue = newQueue()
	s.pace = newPace(s.options.Plan)
	s.hosts = newHosts(s.options.PodNetwork)
	s.power = newPower(s.options.Guests)
	s.events = newRecorder(api.events)
	if err := s.install(ctx); err != nil {
		return err
	}
	s.route()
	if err := s.api.watch(ctx, s.options.RealController); err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	if err := s.serveAdmission(ctx, cancel); err != nil {
		return err
	}
	s.log.Info("simulating KubeVirt", "namespace", s.options.Namespace)
	if s.options.Ready != nil {
		s.options.Ready()
	}
	s.queue.work(ctx, s.reconcile, s.log)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

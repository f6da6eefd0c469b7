package main

import (
	"time"

	"github.com/vitistack/stack/functions/bootstrap-talos/addonsource"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
)

// function turns KubernetesClusters into machines and clusters. It has the order of the phases, which are
// methods of the types below. Each of them has only the clients that its phases use, and none has the
// function. What the function keeps between deliveries only saves requests.
type function struct {
	kube         *kube.Client
	now          func() time.Time
	status       *statusWriter
	secrets      *secretStore
	templates    *templateApplier
	planner      *planner
	approvals    *approvalRequester
	endpoints    *endpointAllocator
	machines     *machineStore
	recoverer    *statusRecoverer
	keys         *keyGenerator
	rotator      *rotator
	renderer     *configRenderer
	configurator *nodeConfigurator
	updater      *configUpdater
	bootstrap    *bootstrapper
	etcd         *etcdChecker
	nodes        *nodeLister
	addons       *addonApplier
	remover      *remover
	replacer     *replacer
	upgrader     *upgrader
	resizer      *resizer
	deleter      *deleter
	// reports has when nodes have reported.
	reports nodeReports
	// reconciles has the reconciles of clusters that run and that wait.
	reconciles sharedReconciles
}

// functionOptions are what the function is started with.
type functionOptions struct {
	// manifestsDir is the folder in which manifests are saved, empty if there is no disk.
	manifestsDir string
	// talosVersion is the Talos version of clusters that name none.
	talosVersion string
	images       talos.Images
	// eventSink is the address to which nodes send their events, empty if they send none.
	eventSink string
	// addonHosts reads the manifests of add-ons by their URLs.
	addonHosts *addonsource.Hosts
	now        func() time.Time
}

// newFunction returns a function that reads and writes objects through client.
func newFunction(client *kube.Client, o functionOptions) *function {
	store := &manifests.Store{Kube: client, Dir: o.manifestsDir}
	status := &statusWriter{kube: client}
	secrets := &secretStore{kube: client, now: o.now}
	machines := &machineStore{kube: client, manifests: store, images: o.images, status: status}
	claims := newConfigClaims(o.now)
	renderer := &configRenderer{kube: client, manifests: store, images: o.images, claims: claims, eventSink: o.eventSink}
	plans := &planner{kube: client, talosVersion: o.talosVersion}
	etcd := &etcdChecker{machines: machines}
	nodes := &nodeLister{secrets: secrets}
	return &function{
		kube:         client,
		now:          o.now,
		status:       status,
		secrets:      secrets,
		templates:    &templateApplier{kube: client, now: o.now},
		planner:      plans,
		approvals:    &approvalRequester{kube: client, now: o.now},
		endpoints:    &endpointAllocator{kube: client},
		machines:     machines,
		recoverer:    &statusRecoverer{secrets: secrets},
		keys:         &keyGenerator{secrets: secrets, machines: machines, status: status, now: o.now},
		rotator:      &rotator{kube: client, secrets: secrets, status: status, now: o.now},
		renderer:     renderer,
		configurator: &nodeConfigurator{kube: client, secrets: secrets, claims: claims},
		updater:      &configUpdater{kube: client, renderer: renderer, manifests: store, secrets: secrets, status: status, now: o.now},
		bootstrap:    &bootstrapper{status: status, now: o.now},
		etcd:         etcd,
		nodes:        nodes,
		addons:       &addonApplier{kube: client, hosts: o.addonHosts, status: status},
		remover:      &remover{kube: client, manifests: store, machines: machines, etcd: etcd, status: status, now: o.now},
		replacer:     &replacer{kube: client, planner: plans, machines: machines, now: o.now},
		upgrader:     &upgrader{etcd: etcd, images: o.images, status: status, now: o.now},
		resizer:      &resizer{kube: client, machines: machines, nodes: nodes, etcd: etcd, status: status, now: o.now},
		deleter:      &deleter{kube: client, manifests: store, machines: machines, status: status},
	}
}

// reconcileOptions says how much work one delivery does.
type reconcileOptions struct {
	// eventID is the ID of the event. It is the same when the event is redelivered.
	eventID string
	// changed is whether an object has just changed, or a node has just reported, so that a delivery that polls nodes need not go on.
	changed bool
	// full is whether a cluster that is up to date is reconciled too, and everything that may have changed without an event is read.
	full bool
	// reported is whether a node has reported a change, also of a cluster that is up to date.
	reported bool
	// reportErrors is whether the event has failed for so long that the status says so.
	reportErrors bool
	// polls is whether nodes are polled for nodePollTime, unless awaitNodeEvent finds that they send an event.
	polls bool
}

// retryGracePeriod is how long an event may fail before the status reports it. Most errors of the
// API server end sooner, and each report costs two writes.
const retryGracePeriod = 30 * time.Second

// nodePollTime is how long a delivery polls nodes. It is far below the time limit of a delivery.
const nodePollTime = 5 * time.Second

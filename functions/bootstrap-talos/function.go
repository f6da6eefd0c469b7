package main

import (
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
)

// function turns KubernetesClusters into machines and clusters. What it keeps between deliveries
// only saves requests.
type function struct {
	kube      *kube.Client
	manifests *manifests.Store
	secrets   *secretStore
	// talosVersion is the Talos version of clusters that name none.
	talosVersion string
	images       talos.Images
	now          func() time.Time
}

// reconcileOptions says how much work one delivery does.
type reconcileOptions struct {
	// eventID is the ID of the event. It is the same when the event is redelivered.
	eventID string
	// full is whether a cluster that is up to date is reconciled too.
	full bool
	// reportErrors is whether the event has failed for so long that the status says so.
	reportErrors bool
	// pollTime is how long nodes are polled, which send no events.
	pollTime time.Duration
	// requeue is whether the event is redelivered while a WaitError asks for that.
	requeue bool
	// requestApproval sends the request for an approval. It is nil if a delivery cannot answer
	// with an event.
	requestApproval func(*event.Event)
}

// retryGracePeriod is how long an event may fail before the status reports it. Most errors of the
// API server end sooner, and each report costs two writes.
const retryGracePeriod = 30 * time.Second

// nodePollTime is the pollTime of a delivery. It is far below the time limit of a delivery.
const nodePollTime = 5 * time.Second

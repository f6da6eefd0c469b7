// Package workload is a light Kubernetes cluster: the API with which clients such as kubectl and
// client-go read, label, cordon and drain nodes, and as much of the controllers as these require. It
// keeps typed objects in memory and a journal of them on disk.
package workload

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Timing has the durations of steps. The zero Timing has no delays.
type Timing struct {
	// NodeReady is the time from a kubelet's start to its Node being ready.
	NodeReady time.Duration
	// NodeLost is the time from a kubelet's end to its Node being unknown.
	NodeLost time.Duration
	// PodStop is the time from a pod's deletion to the end of its containers.
	PodStop time.Duration
}

// Cluster is the shared state of all API servers of one cluster. It is safe for concurrent use.
type Cluster struct {
	mu       sync.Mutex
	store    *store
	timing   Timing
	online   bool
	kubelets map[string]*kubelet
	timers   map[*timer]struct{}
	changed  func()
}

type kubelet struct {
	Kubelet
	// started is whether the kubelet runs pods of the host's network, and ready whether it runs all pods.
	alive, started, ready bool
	timer                 *timer
}

func (k *kubelet) stop() { k.timer.stop() }

// Open reads the cluster from its journal at path, or creates an empty one. changed is called whenever
// something may have changed, with the cluster's lock held: it must not block or call the cluster.
func Open(path string, timing Timing, changed func()) (*Cluster, error) {
	s, err := openStore(path, time.Now)
	if err != nil {
		return nil, err
	}
	return &Cluster{
		store: s, timing: timing, changed: changed,
		kubelets: map[string]*kubelet{}, timers: map[*timer]struct{}{},
	}, nil
}

// Close stops all activity. The journal stays for the next Open.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopTimers()
	return c.store.journal.close()
}

// Remove is Close, and deletes the journal.
func (c *Cluster) Remove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopTimers()
	return c.store.journal.remove()
}

// SetOnline sets whether the control plane works. While it does not, no pod is scheduled or started,
// and no node is declared lost.
func (c *Cluster) SetOnline(online bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.online == online {
		return nil
	}
	c.online = online
	return c.reconcile()
}

// Seeded reports whether the cluster has its first objects.
func (c *Cluster) Seeded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.store.objects[namespaceKind]) > 0
}

func (c *Cluster) pods() []*corev1.Pod {
	objects := c.store.list(podKind, "")
	pods := make([]*corev1.Pod, 0, len(objects))
	for _, obj := range objects {
		pods = append(pods, obj.(*corev1.Pod))
	}
	return pods
}

// maxRounds limits how often the controllers react to each other's changes.
const maxRounds = 8

// reconcile runs the controllers. Callers hold mu.
func (c *Cluster) reconcile() error {
	defer c.changed()
	if !c.online {
		return nil
	}
	for range maxRounds {
		before := c.store.revision
		if err := errors.Join(
			c.reconcileNodes(), c.reconcilePodCIDRs(), c.reconcileDeployments(), c.reconcileReplicaSets(), c.reconcileDaemonSets(),
			c.collectPods(), c.schedule(), c.runPods(), c.connectNodes(), c.reconcileBudgets(), c.reconcileStatuses(),
		); err != nil {
			return err
		}
		if c.store.revision == before {
			return nil
		}
	}
	return nil
}

// timer is delayed work of the cluster. A nil timer has ended.
type timer struct {
	cluster *Cluster
	timer   *time.Timer
}

// after runs work after a delay, with mu held, unless the cluster is closed before. Callers hold mu.
// Without a delay the work still runs after the caller has released mu.
func (c *Cluster) after(d time.Duration, work func() error) *timer {
	t := &timer{cluster: c}
	c.timers[t] = struct{}{}
	t.timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, waiting := c.timers[t]; !waiting {
			return
		}
		delete(c.timers, t)
		_ = work() // a failed write has broken the store, and every request reports that
	})
	return t
}

// pending reports whether the work has not run yet. Callers hold mu.
func (t *timer) pending() bool {
	if t == nil {
		return false
	}
	_, waiting := t.cluster.timers[t]
	return waiting
}

// stop cancels the work. Callers hold mu.
func (t *timer) stop() {
	if t != nil {
		t.timer.Stop()
		delete(t.cluster.timers, t)
	}
}

func (c *Cluster) stopTimers() {
	for t := range c.timers {
		t.stop()
	}
}

func nodeChange(change func(*corev1.Node)) func(runtime.Object) (runtime.Object, error) {
	return func(old runtime.Object) (runtime.Object, error) {
		next := old.(*corev1.Node).DeepCopy()
		change(next)
		return next, nil
	}
}

package kubevirt

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
)

// graveTime is how long a deletion is remembered, so that a late answer to a write does not restore
// the object.
const graveTime = time.Minute

// cache has the newest known state of all objects of one kind. A watch and the answers to the
// simulator's own writes update it.
type cache[P object] struct {
	mu      sync.RWMutex
	objects map[types.NamespacedName]P
	graves  map[types.UID]time.Time
	// changed is called with each object that was changed or deleted.
	changed func(P)
	synced  chan struct{}
	once    sync.Once
}

func newCache[P object]() *cache[P] {
	return &cache[P]{
		objects: map[types.NamespacedName]P{},
		graves:  map[types.UID]time.Time{},
		changed: func(P) {},
		synced:  make(chan struct{}),
	}
}

func (c *cache[P]) get(namespace, name string) P {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects[types.NamespacedName{Namespace: namespace, Name: name}]
}

// each calls visit with every object of a namespace, or of all namespaces if it is empty. visit must
// not call the cache.
func (c *cache[P]) each(namespace string, visit func(P)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for name, o := range c.objects {
		if namespace == "" || name.Namespace == namespace {
			visit(o)
		}
	}
}

// remember stores the answer to a write.
func (c *cache[P]) remember(o P) {
	grace := o.GetDeletionGracePeriodSeconds() // a pod remains for this time
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (grace == nil || *grace == 0) {
		c.drop(o)
		return
	}
	if c.put(o) {
		c.changed(o)
	}
}

// put reports whether o is newer than the cached object.
func (c *cache[P]) put(o P) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, dead := c.graves[o.GetUID()]; dead {
		return false
	}
	name := nameOf(o)
	if known, ok := c.objects[name]; ok && !newer(o.GetResourceVersion(), known.GetResourceVersion()) {
		return false
	}
	c.objects[name] = o
	return true
}

func (c *cache[P]) drop(o P) {
	if c.bury(o) {
		c.changed(o)
	}
}

// bury reports whether o was cached. A newer object of the same name stays.
func (c *cache[P]) bury(o P) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, since := range c.graves {
		if time.Since(since) > graveTime {
			delete(c.graves, uid)
		}
	}
	c.graves[o.GetUID()] = time.Now()
	name := nameOf(o)
	known, ok := c.objects[name]
	if !ok || known.GetUID() != o.GetUID() {
		return false
	}
	delete(c.objects, name)
	return true
}

// Add, Update, Delete, Replace and Resync are what the reflector calls.

func (c *cache[P]) Add(o any) error { return c.Update(o) }

func (c *cache[P]) Update(o any) error {
	if c.put(o.(P)) {
		c.changed(o.(P))
	}
	return nil
}

func (c *cache[P]) Delete(o any) error {
	c.drop(o.(P))
	return nil
}

// Replace stores the answer to a list. Objects that it lacks are deleted, unless they were written
// after the list.
func (c *cache[P]) Replace(list []any, version string) error {
	listed := make(map[types.UID]bool, len(list))
	for _, o := range list {
		listed[o.(P).GetUID()] = true
		_ = c.Update(o)
	}
	var missing []P
	c.each("", func(o P) {
		if !listed[o.GetUID()] && !newer(o.GetResourceVersion(), version) {
			missing = append(missing, o)
		}
	})
	for _, o := range missing {
		c.drop(o)
	}
	c.once.Do(func() { close(c.synced) })
	return nil
}

func (c *cache[P]) Resync() error { return nil }

func nameOf[P object](o P) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// newer reports whether version a was written after version b.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// watched is a kind whose cache has a watch.
type watched interface {
	run(ctx context.Context)
	waitSynced(ctx context.Context) error
}

func (k *kind[P]) run(ctx context.Context) {
	lw := toolscache.NewListWatchFromClient(k.client, k.plural, k.namespace, fields.Everything())
	toolscache.NewReflectorWithOptions(
		toolscache.ToListWatcherWithWatchListSemantics(lw, k.client), k.example, k.cache,
		toolscache.ReflectorOptions{Name: k.plural},
	).RunWithContext(ctx)
}

func (k *kind[P]) waitSynced(ctx context.Context) error {
	select {
	case <-k.cache.synced:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch starts the watches of the caches, that of pods if withPods is true, and returns once each of
// these caches is filled.
func (a *api) watch(ctx context.Context, withPods bool) error {
	kinds := []watched{a.vms, a.vmis, a.imports, a.claims, a.volumes, a.nodes, a.classes, a.networks}
	if withPods {
		kinds = append(kinds, a.pods)
	}
	for _, k := range kinds {
		go k.run(ctx)
	}
	for _, k := range kinds {
		if err := k.waitSynced(ctx); err != nil {
			return err
		}
	}
	return nil
}

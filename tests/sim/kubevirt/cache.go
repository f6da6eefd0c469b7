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

// graveTime is how long a deleted object is remembered, so that an answer to a
// write that arrives after the deletion does not bring it back.
const graveTime = time.Minute

// cache holds the newest known state of all objects of one kind. It is fed by a
// watch and by the answers to the simulator's own writes.
type cache[P object] struct {
	mu      sync.RWMutex
	objects map[types.NamespacedName]P
	graves  map[types.UID]time.Time
	// changed is told each object that became different or was deleted.
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

// each calls visit with every object of a namespace, or of all when it is empty.
// visit must not call the cache.
func (c *cache[P]) each(namespace string, visit func(P)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for name, o := range c.objects {
		if namespace == "" || name.Namespace == namespace {
			visit(o)
		}
	}
}

// remember takes the answer to a write.
func (c *cache[P]) remember(o P) {
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		c.drop(o)
		return
	}
	if c.put(o) {
		c.changed(o)
	}
}

// put reports whether o is newer than what is known.
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

// bury reports whether o was known. An object of the same name that was made
// since is another one, and stays.
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

// Replace takes the answer to a list. What is missing from it is deleted, unless
// it was written after the list was made.
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

// watched is a kind whose cache is fed by a watch.
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

// watch starts to feed the caches, and returns when each has been filled once.
func (a *api) watch(ctx context.Context) error {
	kinds := []watched{a.vms, a.vmis, a.imports, a.claims, a.volumes, a.nodes, a.classes, a.networks}
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

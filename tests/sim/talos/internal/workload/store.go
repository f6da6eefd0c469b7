package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// historyLength is how many changes a watch can start back. An earlier start gets the error that
	// requires a new list.
	historyLength = 1024
	// compactAfter is how many journal lines may exceed the number of objects.
	compactAfter = 2048
)

type key struct{ namespace, name string }

// change is one change of an object.
type change struct {
	kind     *kind
	event    watch.EventType
	object   runtime.Object
	previous runtime.Object
	revision uint64
}

// store has the objects. A stored object is replaced instead of changed, so that it can be encoded
// without the lock. Callers hold Cluster.mu.
type store struct {
	objects  map[*kind]map[key]runtime.Object
	revision uint64
	history  []change
	watchers map[*watcher]struct{}
	journal  *journal
	now      func() time.Time
	// broken is the first write error. After it every change fails.
	broken error
}

func openStore(path string, now func() time.Time) (*store, error) {
	s := &store{now: now, watchers: map[*watcher]struct{}{}}
	s.clear()
	journal, err := openJournal(path, s.replay)
	if err != nil {
		return nil, fmt.Errorf("open the cluster's objects: %w", err)
	}
	s.journal = journal
	return s, nil
}

func (s *store) clear() {
	s.objects = make(map[*kind]map[key]runtime.Object, len(kinds))
	for _, k := range kinds {
		s.objects[k] = map[key]runtime.Object{}
	}
	s.history = nil
}

func (s *store) replay(e entry) error {
	k, ok := kindByPlural(e.Plural, e.Group)
	if !ok {
		return fmt.Errorf("resource %s.%s is unknown", e.Plural, e.Group)
	}
	s.revision = max(s.revision, e.Revision)
	if e.Object == nil {
		delete(s.objects[k], key{e.Namespace, e.Name})
		return nil
	}
	obj := k.empty()
	if err := json.Unmarshal(e.Object, obj); err != nil {
		return err
	}
	s.objects[k][keyOf(obj)] = obj
	return nil
}

func (s *store) get(k *kind, namespace, name string) (runtime.Object, error) {
	obj, ok := s.objects[k][key{namespace, name}]
	if !ok {
		return nil, apierrors.NewNotFound(k.resource(), name)
	}
	return obj, nil
}

// list returns the objects of a namespace, or of all, sorted by name.
func (s *store) list(k *kind, namespace string) []runtime.Object {
	found := make([]runtime.Object, 0, len(s.objects[k]))
	for at, obj := range s.objects[k] {
		if namespace == "" || at.namespace == namespace {
			found = append(found, obj)
		}
	}
	slices.SortFunc(found, func(a, b runtime.Object) int {
		ka, kb := keyOf(a), keyOf(b)
		return cmp.Or(cmp.Compare(ka.namespace, kb.namespace), cmp.Compare(ka.name, kb.name))
	})
	return found
}

// put stores an object and notifies the watchers. The object must not be changed afterwards.
func (s *store) put(k *kind, obj runtime.Object) error {
	if s.broken != nil {
		return s.broken
	}
	m := metaOf(obj)
	if m.GetUID() == "" {
		m.SetUID(types.UID(uuid.NewString()))
		m.SetCreationTimestamp(metav1.NewTime(s.now().Truncate(time.Second)))
	}
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	s.revision++
	m.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	encoded, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	if err := s.record(entry{Group: k.Group, Plural: k.plural, Revision: s.revision, Object: encoded}); err != nil {
		return err
	}
	at := keyOf(obj)
	previous, existed := s.objects[k][at]
	s.objects[k][at] = obj
	event := watch.Added
	if existed {
		event = watch.Modified
	}
	s.notify(change{k, event, obj, previous, s.revision})
	return nil
}

// drop removes an object and notifies the watchers.
func (s *store) drop(k *kind, obj runtime.Object) error {
	if s.broken != nil {
		return s.broken
	}
	at := keyOf(obj)
	s.revision++
	if err := s.record(entry{Group: k.Group, Plural: k.plural, Revision: s.revision, Namespace: at.namespace, Name: at.name}); err != nil {
		return err
	}
	delete(s.objects[k], at)
	last := obj.DeepCopyObject()
	metaOf(last).SetResourceVersion(strconv.FormatUint(s.revision, 10))
	s.notify(change{k, watch.Deleted, last, obj, s.revision})
	return nil
}

func (s *store) record(e entry) error {
	if err := s.journal.append(e); err != nil {
		s.broken = fmt.Errorf("write the cluster's objects: %w", err)
		return s.broken
	}
	return nil
}

// compact rewrites the journal if most of its lines are outdated.
func (s *store) compact() error {
	entries := make([]entry, 0, s.journal.lines)
	for _, k := range kinds {
		for _, obj := range s.list(k, "") {
			encoded, err := json.Marshal(obj)
			if err != nil {
				return err
			}
			entries = append(entries, entry{Group: k.Group, Plural: k.plural, Revision: s.revision, Object: encoded})
		}
	}
	return s.journal.rewrite(entries)
}

func (s *store) notify(c change) {
	s.history = append(s.history, c)
	if len(s.history) > historyLength {
		s.history = slices.Delete(s.history, 0, len(s.history)-historyLength)
	}
	for w := range s.watchers {
		if w.kind == c.kind {
			w.offer(c)
		}
	}
	live := 0
	for _, of := range s.objects {
		live += len(of)
	}
	if s.journal.lines > live+compactAfter {
		if err := s.compact(); err != nil {
			s.broken = fmt.Errorf("compact the cluster's objects: %w", err)
		}
	}
}

func keyOf(obj runtime.Object) key {
	m := metaOf(obj)
	return key{m.GetNamespace(), m.GetName()}
}

func metaOf(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic("workload: " + err.Error()) // every kind has metadata
	}
	return m
}

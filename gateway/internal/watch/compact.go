package watch

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubewatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// compact carries a inventory.Object through a reflector. Whole Kubernetes objects
// never pile up: each page of a list and each event of a watch is converted as it
// arrives.
type compact struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	object *inventory.Object
}

// DeepCopyObject returns the same object again, since it is never changed.
func (c *compact) DeepCopyObject() runtime.Object { return c }

// compactList is a page of a list, converted.
type compactList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject returns the same list again, since it is never changed.
func (l *compactList) DeepCopyObject() runtime.Object { return l }

func convert(from runtime.Object) (*compact, error) {
	o, err := inventory.FromKubernetes(from)
	if err != nil {
		return nil, err
	}
	return &compact{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion},
		object:     o,
	}, nil
}

// listerWatcher reads one kind. It reports each list or watch that fails, and
// each watch that begins.
type listerWatcher struct {
	source  source
	client  rest.Interface
	params  runtime.ParameterCodec
	failed  func(error)
	resumed func()
}

// IsWatchListSemanticsUnSupported keeps the reflector to paged lists: they never
// need more memory than a page, which a stream into a second store would.
func (l *listerWatcher) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists one page of what there is now. With a limit, a
// resourceVersion is exact for the API server, and not a minimum:
// after a restart of the API server no watch goes on from there, and the reflector
// would list it again and again.
func (l *listerWatcher) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Limit > 0 && options.Continue == "" {
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
	}
	page, err := l.list(ctx, options)
	if err != nil && ctx.Err() == nil {
		l.failed(err)
	}
	if err != nil {
		return nil, err
	}
	return page, nil
}

func (l *listerWatcher) list(ctx context.Context, options metav1.ListOptions) (*compactList, error) {
	typed := l.source.list()
	err := l.client.Get().NamespaceIfScoped(l.source.namespace, l.source.namespace != "").Resource(l.source.resource).
		VersionedParams(l.source.narrowed(options), l.params).Do(ctx).Into(typed)
	if err != nil {
		return nil, err
	}
	about, err := meta.ListAccessor(typed)
	if err != nil {
		return nil, fmt.Errorf("read list of %s: %w", l.source.resource, err)
	}
	page := &compactList{ListMeta: metav1.ListMeta{
		ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue(), RemainingItemCount: about.GetRemainingItemCount(),
	}}
	err = meta.EachListItem(typed, func(o runtime.Object) error {
		c, err := convert(o)
		if err == nil {
			page.Items = append(page.Items, c)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read list of %s: %w", l.source.resource, err)
	}
	return page, nil
}

// WatchWithContext watches from the options' resourceVersion on.
func (l *listerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (kubewatch.Interface, error) {
	options.Watch = true
	typed, err := l.client.Get().NamespaceIfScoped(l.source.namespace, l.source.namespace != "").Resource(l.source.resource).
		VersionedParams(l.source.narrowed(options), l.params).Watch(ctx)
	if err != nil {
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && ctx.Err() == nil {
			l.failed(err)
		}
		return nil, err
	}
	l.resumed()
	return kubewatch.Filter(typed, func(e kubewatch.Event) (kubewatch.Event, bool) {
		if e.Type != kubewatch.Added && e.Type != kubewatch.Modified && e.Type != kubewatch.Deleted {
			return e, true
		}
		c, err := convert(e.Object)
		if err != nil {
			return e, false
		}
		e.Object = c
		return e, true
	}), nil
}

// List and Watch are the forms without a context, which the reflector does not
// use.
func (l *listerWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext without a context.
func (l *listerWatcher) Watch(options metav1.ListOptions) (kubewatch.Interface, error) {
	return l.WatchWithContext(context.Background(), options)
}

// sink puts what a reflector sees into the store.
type sink struct {
	kind   inventory.Kind
	store  *inventory.Store
	synced func()
}

func (s *sink) put(o any) error {
	c, ok := o.(*compact)
	if !ok {
		return fmt.Errorf("store object: got a %T", o)
	}
	s.store.Put(c.object)
	return nil
}

// Add records a new object.
func (s *sink) Add(o any) error { return s.put(o) }

// Update records an object that has changed.
func (s *sink) Update(o any) error { return s.put(o) }

// Delete records that an object is gone.
func (s *sink) Delete(o any) error {
	c, ok := o.(*compact)
	if !ok {
		return fmt.Errorf("delete object: got a %T", o)
	}
	s.store.Remove(s.kind, c.object.Key)
	return nil
}

// Replace records a whole list.
func (s *sink) Replace(list []any, _ string) error {
	objects := make([]*inventory.Object, 0, len(list))
	for _, o := range list {
		c, ok := o.(*compact)
		if !ok {
			return fmt.Errorf("store list: got a %T", o)
		}
		objects = append(objects, c.object)
	}
	s.store.Replace(s.kind, objects)
	s.synced()
	return nil
}

// Resync does nothing: the store has everything.
func (s *sink) Resync() error { return nil }

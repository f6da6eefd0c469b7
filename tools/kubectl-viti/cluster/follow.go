package cluster

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Pauses of Follow: several changes within quiet are shown together, and waits become problems as
// time passes, so that a round follows at least every refresh.
const (
	quiet   = 300 * time.Millisecond
	refresh = 10 * time.Second
)

// RefusalTimeout is how long requests are refused until the credentials or rights of the user are at fault. The API server also refuses
// requests for a moment while it starts, and a credential plugin gets new credentials after a refusal.
const RefusalTimeout = 10 * time.Second

// IsRefusal reports whether the API server does not accept the credentials or the rights of the user.
func IsRefusal(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// Follow calls show with the objects of kinds in a namespace, or in all if that is empty, after each
// change until ctx ends. It returns an error of show, and a refusal of the API server that lasts. The end of ctx is not an error.
func (c *Connection) Follow(ctx context.Context, namespace string, kinds []Kind, show func(Objects) error) error {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	refused := make(chan Kind, 1)
	var informers []cache.SharedInformer
	var synced []cache.InformerSynced
	for _, k := range kinds {
		informer := c.informer(k, namespace)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
		})
		err = errors.Join(err, informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			if IsRefusal(err) {
				select {
				case refused <- k:
				default:
				}
			}
		}))
		if err != nil {
			return err
		}
		informers, synced = append(informers, informer), append(synced, informer.HasSynced)
		go informer.Run(ctx.Done())
	}
	cache.WaitForCacheSync(ctx.Done(), synced...)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if !pause(ctx, quiet) {
				return nil
			}
		case k := <-refused:
			if err := c.checkAccess(ctx, k, namespace); err != nil {
				return err
			}
			continue
		case <-time.After(refresh):
		}
		var now Objects
		for _, informer := range informers {
			for _, o := range informer.GetStore().List() {
				if u, ok := o.(*unstructured.Unstructured); ok {
					now.All = append(now.All, *u)
				}
			}
		}
		if err := show(now); err != nil {
			return err
		}
	}
}

// checkAccess returns the refusal of the API server to list a kind, if it lasts.
func (c *Connection) checkAccess(ctx context.Context, k Kind, namespace string) error {
	for end := time.Now().Add(RefusalTimeout); ; {
		_, err := c.In(k, namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if !IsRefusal(err) {
			return nil
		}
		if time.Now().After(end) {
			return c.Explain(err, k, "")
		}
		if !pause(ctx, time.Second) {
			return nil
		}
	}
}

// informer returns an informer of a kind, which lists again after an interruption.
func (c *Connection) informer(k Kind, namespace string) cache.SharedInformer {
	objects := c.In(k, namespace)
	return cache.NewSharedInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, 0)
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

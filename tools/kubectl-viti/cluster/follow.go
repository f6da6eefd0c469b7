package cluster

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// Pauses of Follow: several changes within quiet are shown together, and waits become problems as
// time passes, so that a round follows at least every refresh.
const (
	quiet   = 300 * time.Millisecond
	refresh = 10 * time.Second
)

// Follow calls show with the objects of kinds in a namespace, or in all if that is empty, after each
// change until ctx ends. It returns an error of show. The end of ctx is not an error.
func (c *Connection) Follow(ctx context.Context, namespace string, kinds []Kind, show func(Objects) error) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.Interface, 0, namespace, nil)
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	for _, k := range kinds {
		_, err := factory.ForResource(k.GVR()).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
		})
		if err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if !pause(ctx, quiet) {
				return nil
			}
		case <-time.After(refresh):
		}
		var now Objects
		for _, k := range kinds {
			list, err := factory.ForResource(k.GVR()).Lister().List(labels.Everything())
			if err != nil {
				return err
			}
			for _, o := range list {
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

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

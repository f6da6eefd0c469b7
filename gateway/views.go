package main

import (
	"container/list"
	"sync"

	"golang.org/x/sync/singleflight"
)

// mostViewed bounds the bytes of the views that are kept.
const mostViewed = 32 << 20

// views keeps what queries have found, by an identity that changes with what there
// is to find. The one that was used longest ago goes first. The zero value is
// ready.
type views struct {
	// hit and miss are called, if they are there.
	hit, miss func()

	making singleflight.Group

	mu    sync.Mutex
	kept  map[string]*list.Element
	order list.List
	bytes int
}

type keptView struct {
	id   string
	view view
}

func (k keptView) size() int {
	return len(k.view.body.Plain) + len(k.view.body.Gzip) + len(k.view.body.Zstd) + 512
}

// get returns the view of an identity, and makes it if it is not there. Of many
// who ask at the same time, one makes it.
func (v *views) get(id string, found func() view) view {
	if kept, ok := v.find(id); ok {
		v.hit()
		return kept
	}
	v.miss()
	made, _, _ := v.making.Do(id, func() (any, error) {
		w := found()
		v.keep(keptView{id, w})
		return w, nil
	})
	return made.(view)
}

func (v *views) find(id string) (view, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e, ok := v.kept[id]
	if !ok {
		return view{}, false
	}
	v.order.MoveToFront(e)
	return e.Value.(keptView).view, true
}

func (v *views) keep(k keptView) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept == nil {
		v.kept = map[string]*list.Element{}
	}
	if _, ok := v.kept[k.id]; ok {
		return
	}
	v.kept[k.id] = v.order.PushFront(k)
	v.bytes += k.size()
	for v.bytes > mostViewed && v.order.Len() > 1 {
		last := v.order.Remove(v.order.Back()).(keptView)
		delete(v.kept, last.id)
		v.bytes -= last.size()
	}
}

package listing

import (
	"container/list"
	"sync"

	"golang.org/x/sync/singleflight"
)

// maxCachedBytes bounds the pages in a PageCache.
const maxCachedBytes = 32 << 20

// PageCache keeps pages by an identity that changes with the list. It drops the least recently used page first.
type PageCache struct {
	// Count is called after each lookup.
	Count func(hit bool)

	making singleflight.Group

	mu    sync.Mutex
	pages map[string]*list.Element
	order list.List
	bytes int
}

type cachedPage struct {
	id   string
	page Page
}

// Get returns the page with an identity, and calls make if it is not cached. Concurrent calls for the same identity share one
// call of make.
func (c *PageCache) Get(id string, make func() Page) Page {
	page, ok := c.find(id)
	c.Count(ok)
	if ok {
		return page
	}
	made, _, _ := c.making.Do(id, func() (any, error) {
		page := make()
		c.add(cachedPage{id, page})
		return page, nil
	})
	return made.(Page)
}

func (c *PageCache) find(id string) (Page, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.pages[id]
	if !ok {
		return Page{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(cachedPage).page, true
}

func (c *PageCache) add(p cachedPage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages == nil {
		c.pages = map[string]*list.Element{}
	}
	if _, ok := c.pages[p.id]; ok {
		return
	}
	c.pages[p.id] = c.order.PushFront(p)
	c.bytes += p.page.size()
	for c.bytes > maxCachedBytes && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(cachedPage)
		delete(c.pages, last.id)
		c.bytes -= last.page.size()
	}
}

package inventory

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vitistack/stack/gateway/internal/httpbody"
)

// Collection is all items of a topic at one moment. It is never changed: apply
// makes the next one.
type Collection struct {
	Topic Topic
	// Version is the version of the snapshot in which the collection last changed.
	Version uint64
	// Items are in the order of namespace, name and identifier.
	Items []*Item
	Tally Tally

	byID []*Item
	body sync.Once
	read atomic.Bool
	view httpbody.Body
}

// Change is what has become of a topic between two snapshots.
type Change struct {
	Topic   Topic
	Upserts []*Item
	Removes []*Item
	// Became are those of the upserts that were not ready before and are now.
	Became []*Item
}

// Empty tells whether nothing has changed.
func (c Change) Empty() bool { return len(c.Upserts) == 0 && len(c.Removes) == 0 }

// byPlace is the order of items in a collection.
func byPlace(a, b *Item) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
}

func byID(a, b *Item) int { return strings.Compare(a.ID, b.ID) }

// apply returns the collection after the changes, which give an identifier its
// new item, or nil where it is gone, and what has really changed. Items that are
// as they were are not mentioned, and where that is so of all, the collection
// stays the same.
func (c *Collection) apply(changes map[string]*Item, version uint64) (*Collection, Change) {
	change := Change{Topic: c.Topic}
	replaced := false
	gone, put := map[string]bool{}, []*Item(nil)
	for id, item := range changes {
		old := c.Find(id)
		switch {
		case item == nil && old != nil:
			gone[id] = true
			change.Removes = append(change.Removes, old)
		case item != nil && !same(old, item):
			change.Upserts = append(change.Upserts, item)
			if item.Readiness.Ready && (old == nil || !old.Readiness.Ready) {
				change.Became = append(change.Became, item)
			}
			put = append(put, item)
		case item != nil && old.Object != item.Object:
			replaced = true
			put = append(put, item)
		}
	}
	if change.Empty() && !replaced {
		return c, change
	}
	slices.SortFunc(change.Upserts, byPlace)
	slices.SortFunc(change.Removes, byPlace)
	next := &Collection{Topic: c.Topic, Version: version}
	if change.Empty() {
		next.Version = c.Version
	}
	slices.SortFunc(put, byPlace)
	next.Items = merge(c.Items, put, gone, byPlace)
	slices.SortFunc(put, byID)
	next.byID = merge(c.byID, put, gone, byID)
	next.Tally = tally(next.Items)
	return next, change
}

// same tells whether two items look the same to everybody outside.
func same(a, b *Item) bool {
	return a != nil && bytes.Equal(a.JSON, b.JSON) && bytes.Equal(a.List, b.List)
}

// merge puts items, which are sorted, into a copy of old, which is too, each in
// the place of the one that is equal in that order, and leaves out what is gone.
func merge(old, put []*Item, gone map[string]bool, order func(a, b *Item) int) []*Item {
	merged := make([]*Item, 0, len(old)+len(put)-len(gone))
	for _, item := range old {
		for len(put) > 0 && order(put[0], item) < 0 {
			merged, put = append(merged, put[0]), put[1:]
		}
		switch {
		case len(put) > 0 && put[0].ID == item.ID:
			merged, put = append(merged, put[0]), put[1:]
		case len(gone) > 0 && gone[item.ID]:
		default:
			merged = append(merged, item)
		}
	}
	return append(merged, put...)
}

// Find returns the item with an identifier, or nil.
func (c *Collection) Find(id string) *Item {
	i, ok := slices.BinarySearchFunc(c.byID, id, func(item *Item, id string) int { return strings.Compare(item.ID, id) })
	if !ok {
		return nil
	}
	return c.byID[i]
}

// FindNamed returns the item of a name in a namespace, or nil.
func (c *Collection) FindNamed(namespace, name string) *Item {
	i, _ := slices.BinarySearchFunc(c.Items, Key{namespace, name}, func(item *Item, key Key) int {
		return cmp.Or(strings.Compare(item.Namespace, key.Namespace), strings.Compare(item.Name, key.Name))
	})
	if i < len(c.Items) && c.Items[i].Namespace == namespace && c.Items[i].Name == name {
		return c.Items[i]
	}
	return nil
}

// InNamespace returns the items of a namespace, in their order.
func (c *Collection) InNamespace(namespace string) []*Item {
	first, _ := slices.BinarySearchFunc(c.Items, namespace, func(item *Item, ns string) int { return strings.Compare(item.Namespace, ns) })
	last := first
	for last < len(c.Items) && c.Items[last].Namespace == namespace {
		last++
	}
	return c.Items[first:last]
}

// Tally counts the items of a collection.
type Tally struct {
	Total int `json:"total"`
	// Ready are those whose condition Ready is true.
	Ready    int            `json:"ready"`
	ByStatus map[string]int `json:"byStatus"`
	ByPhase  map[string]int `json:"byPhase"`
	// Waiting has, by reason, those that are not ready.
	Waiting map[string]int `json:"waiting"`
}

func tally(items []*Item) Tally {
	t := Tally{ByStatus: map[string]int{}, ByPhase: map[string]int{}, Waiting: map[string]int{}}
	for _, i := range items {
		t.Total++
		t.ByStatus[i.Status]++
		t.ByPhase[i.Phase]++
		if i.Readiness.Ready {
			t.Ready++
		} else {
			t.Waiting[firstOf(i.Readiness.Reason, "Unknown")]++
		}
	}
	return t
}

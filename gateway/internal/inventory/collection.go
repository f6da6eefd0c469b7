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

// Collection holds all items of a topic at one moment. It is immutable: apply returns the next one.
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

// Change is the difference of a topic between two snapshots.
type Change struct {
	Topic   Topic
	Upserts []*Item
	Removes []*Item
	// Became are the upserts that have become ready.
	Became []*Item
}

// Empty reports whether nothing has changed.
func (c Change) Empty() bool { return len(c.Upserts) == 0 && len(c.Removes) == 0 }

// byPlace orders the items of a collection.
func byPlace(a, b *Item) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
}

func byID(a, b *Item) int { return strings.Compare(a.ID, b.ID) }

// apply returns the collection after changes, and the actual difference. changes maps an identifier to its new item, or to nil if it
// is deleted. An item that clients cannot distinguish from the old one is no difference; without a difference apply returns c.
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

// same reports whether clients see no difference between two items.
func same(a, b *Item) bool {
	return a != nil && bytes.Equal(a.JSON, b.JSON) && bytes.Equal(a.List, b.List)
}

// merge returns a copy of old with the items of put, and without the removed ones. old and put are sorted by order; an item of put
// replaces the item with its identifier.
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
	// Ready counts the items whose condition Ready is true.
	Ready    int            `json:"ready"`
	ByStatus map[string]int `json:"byStatus"`
	ByPhase  map[string]int `json:"byPhase"`
	// Waiting counts the items that are not ready, by reason.
	Waiting map[string]int `json:"waiting"`
}

// UnknownReason counts the items without a reason.
const UnknownReason = "Unknown"

func tally(items []*Item) Tally {
	t := Tally{ByStatus: map[string]int{}, ByPhase: map[string]int{}, Waiting: map[string]int{}}
	for _, i := range items {
		t.Total++
		t.ByStatus[i.Status]++
		t.ByPhase[i.Phase]++
		if i.Readiness.Ready {
			t.Ready++
		} else {
			t.Waiting[cmp.Or(i.Readiness.Reason, UnknownReason)]++
		}
	}
	return t
}

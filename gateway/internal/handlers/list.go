package handlers

import (
	"iter"
	"math"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/listing"
	"github.com/vitistack/stack/gateway/internal/response"
)

// list is a list that queries select from.
type list struct {
	// field is the field of the response that holds the entries.
	field      string
	vocabulary listing.Vocabulary
	// tag is the entity tag of the whole list.
	tag     string
	entries iter.Seq[listing.Entry]
	// resources are the resources that a caller needs rights on.
	resources []apiserver.Resource
	// exact lists have one field in their model, so that their body cannot tell that it is cut. They are cut only if the request names a limit.
	exact bool
}

// sendList answers a query on a list with the entries that the caller may see. Pages are cached until the list changes, because
// many clients of the page send the same query.
func (h *Inventory) sendList(c *fiber.Ctx, l list) error {
	limit := inventory.PageSize
	if l.exact {
		limit = math.MaxInt
	}
	q, err := listing.Parse(utils.CopyString(string(c.Request().URI().QueryString())), l.vocabulary, limit)
	if err != nil {
		return err
	}
	visible, err := h.Access.VisibilityOf(c, "list", q.Namespaces(), l.resources)
	if err != nil {
		return err
	}
	if !visible.All {
		l.entries, l.tag = visibleEntries(l.entries, visible), l.tag+"-"+visible.Digest()
	}
	tag, path := l.tag+"-"+q.Digest(), utils.CopyString(c.Path())
	page := h.Pages.Get(tag, func() listing.Page { return q.Find(l.field, path, !l.exact, l.entries) })
	header := &c.Context().Response.Header
	header.Set("X-Total-Count", strconv.Itoa(page.Total))
	if next := q.NextPath(path, page); next != "" {
		header.Set(fiber.HeaderLink, "<"+next+`>; rel="next"`)
	}
	return response.Send(c, tag, fiber.MIMEApplicationJSON, page.Body)
}

// visibleEntries returns the entries in visible namespaces.
func visibleEntries(all iter.Seq[listing.Entry], v auth.Visibility) iter.Seq[listing.Entry] {
	return func(yield func(listing.Entry) bool) {
		for e := range all {
			if v.Includes(e.Attribute("namespace")) && !yield(e) {
				return
			}
		}
	}
}

// itemEntry is an item of a topic as an entry.
type itemEntry struct{ *inventory.Item }

// Place is the position of the item in its collection.
func (e itemEntry) Place() []string { return []string{e.Namespace, e.Name, e.ID} }

func entriesOf(items []*inventory.Item) iter.Seq[listing.Entry] {
	return func(yield func(listing.Entry) bool) {
		for _, i := range items {
			if !yield(itemEntry{i}) {
				return
			}
		}
	}
}

package netbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

const (
	// fieldUID is the custom field that has the UID of the NetworkNamespace that an object is
	// for. An administrator of NetBox creates it, of type text, for prefixes, IP addresses
	// and VLANs.
	fieldUID = "vitistack_uid"
	// pageSize is the number of objects on a page, below which an administrator of NetBox may set another bound (MAX_PAGE_SIZE). An object
	// has comments and custom fields of any length, and the client reads 4 MiB of an answer. maxObjects is our bound on a list.
	pageSize   = 200
	maxObjects = 50_000
)

// Backend is how messages name NetBox.
var Backend = provider.Backend{Name: "NetBox", URL: "NETBOX_URL", Access: "NETBOX_TOKEN, or the rights of its user"}

// api is NetBox's REST API.
type api struct{ client *httpclient.Client }

// requestError is a refused request: the Error for the user, and the cause, by which the
// caller recognises a full parent.
type requestError struct {
	shown provider.Error
	cause error
}

func (e requestError) Error() string   { return e.shown.Error() }
func (e requestError) Unwrap() []error { return []error{e.shown, e.cause} }

// Objects of NetBox, with the fields that are used here.
type (
	customFields map[string]any
	reference    struct {
		ID   int    `json:"id"`
		Slug string `json:"slug"`
	}
	object struct {
		ID           int          `json:"id"`
		CustomFields customFields `json:"custom_fields"`
	}
	prefix struct {
		object
		Prefix string `json:"prefix"`
		Status struct {
			Value string `json:"value"`
		} `json:"status"`
		Role *reference `json:"role"`
		VRF  *reference `json:"vrf"`
		VLAN *reference `json:"vlan"`
		// ScopeType, ScopeID and Scope are the place of a prefix since version 4.2. Site is
		// the place before that.
		ScopeType string     `json:"scope_type"`
		ScopeID   int        `json:"scope_id"`
		Scope     *reference `json:"scope"`
		Site      *reference `json:"site"`

		prefix netip.Prefix
	}
	address struct {
		object
		Address string `json:"address"`

		address netip.Prefix
	}
	vlan struct {
		object
		VID   int32      `json:"vid"`
		Group *reference `json:"group"`
	}
	vlanGroup struct {
		object
		Slug string `json:"slug"`
	}
)

// Types of the scope of a prefix.
const (
	scopeSite     = "dcim.site"
	scopeLocation = "dcim.location"
)

// gateway returns the first address of a prefix, with its length.
func (p prefix) gateway() netip.Prefix {
	return netip.PrefixFrom(p.prefix.Addr().Next(), p.prefix.Bits())
}

// contains reports whether a prefix lies in p, in the same VRF.
func (p prefix) contains(o prefix) bool {
	sameVRF := p.VRF == nil && o.VRF == nil || p.VRF != nil && o.VRF != nil && p.VRF.ID == o.VRF.ID
	return sameVRF && p.prefix.Bits() < o.prefix.Bits() && p.prefix.Contains(o.prefix.Addr())
}

// groupSlug returns the slug of the group of a VLAN, or an empty string.
func (v vlan) groupSlug() string {
	if v.Group == nil {
		return ""
	}
	return v.Group.Slug
}

// isAt reports whether a prefix that NetBox found by a site is at that site. Of a prefix in
// a location below the site NetBox shows the location only.
func (p prefix) isAt(site string) bool {
	return p.siteSlug() == site || p.ScopeType == scopeLocation
}

func (p prefix) siteSlug() string {
	switch {
	case p.ScopeType == scopeSite && p.Scope != nil:
		return p.Scope.Slug
	case p.Site != nil:
		return p.Site.Slug
	default:
		return ""
	}
}

// copyScope sets the place of the prefix in the body of a request.
func (p prefix) copyScope(body map[string]any) {
	if p.ScopeType != "" {
		body["scope_type"], body["scope_id"] = p.ScopeType, p.ScopeID
	}
	if p.Site != nil {
		body["site"] = p.Site.ID
	}
	if p.VRF != nil {
		body["vrf"] = p.VRF.ID
	}
}

// isFieldValue reports whether a custom field has the value that a text describes, as NetBox's filters compare them: a number
// by its value, a reference to an object by the ID of the object, and a list by each of its values.
func isFieldValue(has any, text string) bool {
	switch has := has.(type) {
	case nil:
		return false
	case float64:
		n, err := strconv.ParseFloat(text, 64)
		return err == nil && n == has
	case map[string]any:
		return isFieldValue(has["id"], text)
	case []any:
		return slices.ContainsFunc(has, func(one any) bool { return isFieldValue(one, text) })
	default:
		return fmt.Sprint(has) == text
	}
}

// uid returns the UID of the NetworkNamespace that an object was created for, or nothing.
func (f customFields) uid() string {
	uid, _ := f[fieldUID].(string)
	return uid
}

// belongTo reports whether an object was created for a network. NetBox ignores a filter by
// a custom field that it does not have, and lists everything.
func (f customFields) belongTo(nn *v1alpha2.NetworkNamespace) bool {
	return nn.UID != "" && f.uid() == string(nn.UID)
}

func uidQuery(nn *v1alpha2.NetworkNamespace) map[string]string {
	return map[string]string{"cf_" + fieldUID: string(nn.UID)}
}

// list reads all objects of a kind that match a query.
func list[T any](ctx context.Context, a api, kind string, query map[string]string) ([]T, error) {
	values := url.Values{"limit": {fmt.Sprint(pageSize)}}
	for name, value := range query {
		values.Set(name, value)
	}
	var all []T
	for len(all) < maxObjects {
		values.Set("offset", fmt.Sprint(len(all)))
		var page struct {
			Count   *int    `json:"count"`
			Next    *string `json:"next"`
			Results []T     `json:"results"`
		}
		if err := a.do(ctx, http.MethodGet, "/api/ipam/"+kind+"/", values, nil, &page); err != nil {
			return nil, err
		}
		if page.Count == nil {
			return nil, Backend.InvalidResponse("it is not a list of " + kind)
		}
		all = append(all, page.Results...)
		switch {
		case page.Next == nil:
			return all, nil
		case len(page.Results) == 0:
			return nil, Backend.InvalidResponse("a page of " + kind + " is empty and not the last one")
		}
	}
	return nil, provider.PermanentError("TooManyObjects", "NetBox lists more than %d %s: check that they have the custom field %s", maxObjects, kind, fieldUID)
}

// uniqueByID returns objects in the order of their creation, each once. An object is listed
// twice if another one is created between two pages.
func uniqueByID[T any](all []T, id func(T) int) []T {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	return slices.CompactFunc(all, func(a, b T) bool { return id(a) == id(b) })
}

// keepFirst returns the first of a network's objects of a kind, or nil. It deletes the
// others, which deliveries at the same time have created.
func keepFirst[T any](ctx context.Context, a api, kind string, own []T, id func(T) int) (*T, error) {
	if len(own) == 0 {
		return nil, nil
	}
	for _, surplus := range own[1:] {
		if err := a.remove(ctx, kind, id(surplus)); err != nil {
			return nil, err
		}
	}
	return &own[0], nil
}

// do sends one request. It returns a requestError if NetBox refuses it.
func (a api) do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	_, err := a.client.Do(ctx, httpclient.Request{Method: method, Path: path, Query: query, Body: body}, into)
	if err == nil {
		return nil
	}
	var shown provider.Error
	if !errors.As(Backend.RequestError(err), &shown) {
		return err
	}
	var e *httpclient.Error
	if errors.As(err, &e) && (e.Kind == httpclient.Rejected || e.Kind == httpclient.Conflict) {
		if said := errorText(e.Body); said != "" {
			shown = provider.PermanentError(shown.Reason, "NetBox refuses %s: %s", strings.ToLower(method)+" "+path, said)
		}
		if text := string(e.Body); strings.Contains(text, fieldUID) && strings.Contains(text, "Unknown") {
			shown = errNotPrepared
		}
	}
	return requestError{shown, err}
}

// errNotPrepared says that NetBox lacks the custom field.
var errNotPrepared = provider.PermanentError("SourceNotPrepared", "NetBox has no custom field %s: create one of type text for prefixes, IP addresses and VLANs", fieldUID)

// checkPrepared returns errNotPrepared if NetBox shows a prefix without the custom field: it ignores the filter then, and no object
// says which network it is of.
func (a api) checkPrepared(ctx context.Context) error {
	var page struct {
		Results []object `json:"results"`
	}
	if err := a.do(ctx, http.MethodGet, "/api/ipam/prefixes/", url.Values{"limit": {"1"}}, nil, &page); err != nil {
		return err
	}
	for _, o := range page.Results {
		if _, has := o.CustomFields[fieldUID]; !has {
			return errNotPrepared
		}
	}
	return nil
}

// remove deletes an object. It succeeds if the object is gone.
func (a api) remove(ctx context.Context, kind string, id int) error {
	err := a.do(ctx, http.MethodDelete, objectPath(kind, id), nil, nil, nil)
	if provider.IsNotFound(err) {
		return nil
	}
	return err
}

func objectPath(kind string, id int) string { return fmt.Sprintf("/api/ipam/%s/%d/", kind, id) }

// errorText returns what NetBox says in the body of an error, on one line: an object, or a
// list of objects, with a text or a list of texts for each field.
func errorText(body []byte) string {
	var all []map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil {
		var single map[string]json.RawMessage
		if json.Unmarshal(body, &single) != nil {
			return ""
		}
		all = append(all, single)
	}
	var lines []string
	for _, fields := range all {
		for field, raw := range fields {
			var texts []string
			if json.Unmarshal(raw, &texts) != nil {
				var single string
				if json.Unmarshal(raw, &single) != nil {
					continue
				}
				texts = []string{single}
			}
			line := strings.Join(texts, " ")
			if field != "__all__" && field != "detail" {
				line = field + ": " + line
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	const maxLength = 300
	text := strings.Join(strings.Fields(strings.Join(lines, "; ")), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxLength)], "")
}

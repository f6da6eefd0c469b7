package main

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
	"strings"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/wire"
)

const (
	// fieldUID is the custom field, of type text and for prefixes, IP addresses and
	// VLANs, that says which NetworkNamespace an object of NetBox is for.
	fieldUID = "vitistack_uid"

	defaultIPv4Length = 24
	defaultIPv6Length = 64
	// pageSize is NetBox's own bound on a page, below which an administrator may set
	// another (MAX_PAGE_SIZE), and mostObjects ours on a list.
	pageSize    = 1000
	mostObjects = 50_000
)

var netboxBackend = backend{name: "NetBox", url: "NETBOX_URL", access: "NETBOX_TOKEN, or the rights of its user"}

// netboxAPI is NetBox's REST API.
type netboxAPI struct{ wire *wire.Client }

// netboxError is what NetBox says against a request, as a fault. What it says with
// 409 is still to be judged.
type netboxError struct {
	fault
	cause error
}

func (e netboxError) Unwrap() []error { return []error{e.fault, e.cause} }

// Objects of NetBox, with the fields that matter here.
type (
	netboxFields map[string]any
	netboxRef    struct {
		ID   int    `json:"id"`
		Slug string `json:"slug"`
	}
	netboxObject struct {
		ID           int          `json:"id"`
		CustomFields netboxFields `json:"custom_fields"`
	}
	netboxPrefix struct {
		netboxObject
		Prefix string `json:"prefix"`
		Status struct {
			Value string `json:"value"`
		} `json:"status"`
		Role *netboxRef `json:"role"`
		VRF  *netboxRef `json:"vrf"`
		VLAN *netboxRef `json:"vlan"`
		// ScopeType, ScopeID and Scope are the place of a prefix since version 4.2,
		// Site is before.
		ScopeType string     `json:"scope_type"`
		ScopeID   int        `json:"scope_id"`
		Scope     *netboxRef `json:"scope"`
		Site      *netboxRef `json:"site"`

		prefix netip.Prefix
	}
	netboxAddress struct {
		netboxObject
		Address string `json:"address"`
	}
	netboxVLAN struct {
		netboxObject
		VID int32 `json:"vid"`
	}
	netboxGroup struct {
		netboxObject
		Slug string `json:"slug"`
	}
)

// Types of what a prefix is scoped to.
const (
	scopeSite     = "dcim.site"
	scopeLocation = "dcim.location"
)

// isAt tells whether a prefix that NetBox has found by a site is there, as far as it
// shows. Of one that is scoped to a location below the site it shows the location alone.
func (p netboxPrefix) isAt(site string) bool {
	return p.siteSlug() == site || p.ScopeType == scopeLocation
}

// siteSlug is the site that a prefix is at, and empty where it is at none.
func (p netboxPrefix) siteSlug() string {
	switch {
	case p.ScopeType == scopeSite && p.Scope != nil:
		return p.Scope.Slug
	case p.Site != nil:
		return p.Site.Slug
	default:
		return ""
	}
}

// place puts what is made into the place of its parent.
func (p netboxPrefix) place(body map[string]any) {
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

// belongsTo tells whether an object was made for a network. NetBox ignores a
// condition on a custom field that it does not have, and then lists everything.
func (f netboxFields) belongsTo(nn *v1alpha2.NetworkNamespace) bool {
	return nn.UID != "" && f[fieldUID] == string(nn.UID)
}

func byUID(nn *v1alpha2.NetworkNamespace) map[string]string {
	return map[string]string{"cf_" + fieldUID: string(nn.UID)}
}

// list reads all objects of a kind that meet conditions. It returns a fault where
// the objects don't have the custom field.
func list[T any](ctx context.Context, api netboxAPI, kind string, conditions map[string]string) ([]T, error) {
	query := url.Values{"limit": {fmt.Sprint(pageSize)}}
	for name, value := range conditions {
		query.Set(name, value)
	}
	var all []T
	for len(all) < mostObjects {
		query.Set("offset", fmt.Sprint(len(all)))
		var answer struct {
			Count   *int    `json:"count"`
			Next    *string `json:"next"`
			Results []T     `json:"results"`
		}
		if err := api.do(ctx, http.MethodGet, "/api/ipam/"+kind+"/", query, nil, &answer); err != nil {
			return nil, err
		}
		if answer.Count == nil {
			return nil, unexpected(netboxBackend, "it is no list of "+kind)
		}
		all = append(all, answer.Results...)
		switch {
		case answer.Next == nil:
			return all, nil
		case len(answer.Results) == 0:
			return nil, unexpected(netboxBackend, "a page of "+kind+" that is not the last is empty")
		}
	}
	return nil, final("TooManyObjects", "NetBox lists more than %d %s: check that they have the custom field %s", mostObjects, kind, fieldUID)
}

// eachOnce are objects in the order in which they were made. One may be listed twice,
// where another is made between two pages.
func eachOnce[T any](all []T, id func(T) int) []T {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	return slices.CompactFunc(all, func(a, b T) bool { return id(a) == id(b) })
}

// firstOf is the first of a network's own objects of a kind, and nil where there is
// none. The others, which deliveries at the same moment make, it removes.
func firstOf[T any](ctx context.Context, api netboxAPI, kind string, own []T, id func(T) int) (*T, error) {
	if len(own) == 0 {
		return nil, nil
	}
	for _, surplus := range own[1:] {
		if err := api.remove(ctx, kind, id(surplus)); err != nil {
			return nil, err
		}
	}
	return &own[0], nil
}

// do sends one request.
func (a netboxAPI) do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	_, err := a.wire.Do(ctx, wire.Request{Method: method, Path: path, Query: query, Body: body}, into)
	if err == nil {
		return nil
	}
	why := faultOf(netboxBackend, err)
	var f fault
	if !errors.As(why, &f) {
		return err
	}
	var e *wire.Error
	if errors.As(err, &e) && (e.Kind == wire.Rejected || e.Kind == wire.Conflict) {
		if said := complaints(e.Body); said != "" {
			f = final(f.reason, "NetBox refuses %s: %s", strings.ToLower(method)+" "+path, said)
		}
		if text := string(e.Body); strings.Contains(text, fieldUID) && strings.Contains(text, "Unknown") {
			f = final("SourceNotPrepared", "NetBox has no custom field %s: make one of type text for prefixes, IP addresses and VLANs", fieldUID)
		}
	}
	return netboxError{f, err}
}

// remove deletes an object. It is no error if it is gone.
func (a netboxAPI) remove(ctx context.Context, kind string, id int) error {
	err := a.do(ctx, http.MethodDelete, one(kind, id), nil, nil, nil)
	var e *wire.Error
	if errors.As(err, &e) && e.Kind == wire.NotFound && e.Detail() != "" {
		return nil
	}
	return err
}

// object1 is the path of one object.
func one(kind string, id int) string { return fmt.Sprintf("/api/ipam/%s/%d/", kind, id) }

// complaints is what NetBox says against a request: an object, or a list of them,
// with a list of sentences for each field.
func complaints(body []byte) string {
	var all []map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil {
		var single map[string]json.RawMessage
		if json.Unmarshal(body, &single) != nil {
			return ""
		}
		all = append(all, single)
	}
	var said []string
	for _, fields := range all {
		for field, raw := range fields {
			var sentences []string
			if json.Unmarshal(raw, &sentences) != nil {
				var sentence string
				if json.Unmarshal(raw, &sentence) != nil {
					continue
				}
				sentences = []string{sentence}
			}
			text := strings.Join(sentences, " ")
			if field != "__all__" && field != "detail" {
				text = field + ": " + text
			}
			said = append(said, text)
		}
	}
	slices.Sort(said)
	const longest = 300
	text := strings.Join(strings.Fields(strings.Join(said, "; ")), " ")
	return strings.ToValidUTF8(text[:min(len(text), longest)], "")
}

// conditions say to people which parents are looked for.
func conditions(want v1alpha2.NetBoxRequest) string {
	var all []string
	for name, value := range want.CustomFields {
		all = append(all, name+" "+value)
	}
	slices.Sort(all)
	if want.Role != "" {
		all = append([]string{"role " + want.Role}, all...)
	}
	if want.Site != "" {
		all = append([]string{"site " + want.Site}, all...)
	}
	if len(all) == 0 {
		return "at all"
	}
	return "with " + strings.Join(all, ", ")
}

func described(nn *v1alpha2.NetworkNamespace) string {
	const longest = 180 // of NetBox's 200
	text := "NetworkNamespace " + nn.Namespace + "/" + nn.Name
	return text[:min(len(text), longest)]
}

// vlanName is unique in its group, also where a network of the same name was there
// before.
func vlanName(nn *v1alpha2.NetworkNamespace) string {
	const longest, unique = 64, 8
	uid := string(nn.UID)
	return nn.Name[:min(len(nn.Name), longest-unique-1)] + "-" + uid[:min(len(uid), unique)]
}

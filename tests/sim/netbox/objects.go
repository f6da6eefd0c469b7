package netbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go4.org/netipx"
)

// Limits of NetBox.
const (
	defaultPage    = 50
	maxPage        = 1000
	maxName        = 64
	maxDescription = 200
	maxBody        = 1 << 20
)

// list responds with one page of the objects that match the filters of the query.
func (s *Server) list(of func() map[int]fields) answerer {
	return func(r *http.Request) answer {
		query := r.URL.Query()
		if bad := s.checkChoices(query); bad != nil {
			return *bad
		}
		found := []fields{}
		for _, id := range slices.Sorted(maps.Keys(of())) {
			if o := of()[id]; s.meets(o, query) {
				found = append(found, o)
			}
		}
		limit, offset := number(query.Get("limit"), defaultPage), number(query.Get("offset"), 0)
		if limit == 0 || limit > s.options.MaxPage {
			limit = s.options.MaxPage
		}
		page := found[min(offset, len(found)):min(offset+limit, len(found))]
		var next any
		if offset+limit < len(found) {
			next = fmt.Sprintf("http://%s%s?limit=%d&offset=%d", r.Host, r.URL.Path, limit, offset+limit)
		}
		return answer{http.StatusOK, fields{"count": len(found), "next": next, "previous": nil, "results": page}}
	}
}

// checkChoices rejects slugs of roles and sites that do not exist. NetBox filters by both with ModelMultipleChoiceFilter
// (PrefixFilterSet in netbox/ipam/filtersets.py).
func (s *Server) checkChoices(query map[string][]string) *answer {
	wrong := fields{}
	for name, slug := range map[string]func(Parent) string{"role": func(p Parent) string { return p.Role }, "site": func(p Parent) string { return p.Site }} {
		for _, value := range query[name] {
			if !slices.ContainsFunc(s.options.Parents, func(p Parent) bool { return slug(p) == value }) {
				wrong[name] = []string{fmt.Sprintf("Select a valid choice. %s is not one of the available choices.", value)}
			}
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return &answer{http.StatusBadRequest, wrong}
}

func number(text string, standard int) int {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return n
	}
	return standard
}

// meets reports whether an object matches all known filters of a query.
func (s *Server) meets(o fields, query map[string][]string) bool {
	for name, values := range query {
		var has string
		switch custom, isCustom := strings.CutPrefix(name, "cf_"); {
		case isCustom && s.known[custom]:
			if !hasField(member(o, "custom_fields", custom), values) {
				return false
			}
			continue
		case name == "status", name == "family":
			has = plain(member(o, name, "value"))
		case name == "role":
			has = plain(member(o, name, "slug"))
		case name == "description__ic":
			if !slices.ContainsFunc(values, func(v string) bool {
				return strings.Contains(strings.ToLower(plain(o["description"])), strings.ToLower(v))
			}) {
				return false
			}
			continue
		case name == "slug", name == "prefix":
			has = plain(o[name])
		case name == "site":
			has = s.siteOf(o)
		default:
			continue
		}
		if !slices.Contains(values, has) {
			return false
		}
	}
	return true
}

// hasField reports whether a custom field has one of the values of a filter. NetBox filters numbers by MultiValueNumberFilter, objects by their
// IDs, and multiple selections and objects by each of their values (CustomField.to_filter in netbox/extras/models/customfields.py).
func hasField(value any, values []string) bool {
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, func(one any) bool { return hasField(one, values) })
	case fields:
		return hasField(value["id"], values)
	case float64:
		return slices.ContainsFunc(values, func(text string) bool { n, err := strconv.ParseFloat(text, 64); return err == nil && n == value })
	default:
		return slices.Contains(values, plain(value))
	}
}

func member(o fields, name, key string) any {
	inner, _ := o[name].(fields)
	return inner[key]
}

func plain(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// body parses the JSON object of a request.
func body(r *http.Request) (fields, *answer) {
	var o fields
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody)).Decode(&o); err != nil {
		a := detail(http.StatusBadRequest, "JSON parse error - %v", err)
		return nil, &a
	}
	return o, nil
}

// custom returns the custom fields of a new object. NetBox rejects unknown ones.
func (s *Server) custom(o fields) (fields, *answer) {
	all := s.emptyFields()
	given, ok := o["custom_fields"].(fields)
	if o["custom_fields"] != nil && !ok {
		a := invalid("custom_fields", "Invalid data format. Custom field data must be passed as a dictionary mapping field names to their values.")
		return nil, &a
	}
	for name, value := range given {
		if !s.known[name] {
			a := invalid("__all__", "Unknown field name '%s' in custom field data.", name)
			return nil, &a
		}
		all[name] = value
	}
	return all, nil
}

// common validates the fields that all objects have.
func common(o fields) *answer {
	if text, ok := o["description"].(string); ok && len(text) > maxDescription {
		a := invalid("description", "Ensure this field has no more than %d characters.", maxDescription)
		return &a
	}
	if status := plain(o["status"]); status != "" && !slices.Contains([]string{"container", "active", "reserved", "deprecated"}, status) {
		a := invalid("status", "%q is not a valid choice.", status)
		return &a
	}
	return nil
}

// takePrefix creates the first free prefix of a length in a parent.
func (s *Server) takePrefix(r *http.Request) answer {
	parent, ok := s.books.Prefixes[number(r.PathValue("id"), 0)]
	if !ok {
		return missing("Prefix")
	}
	o, bad := body(r)
	if bad != nil {
		return *bad
	}
	within, err := netip.ParsePrefix(plain(parent["prefix"]))
	if err != nil {
		return detail(http.StatusInternalServerError, "%v", err)
	}
	length, ok := o["prefix_length"].(float64)
	switch {
	case o["prefix_length"] == nil:
		return answer{http.StatusBadRequest, []fields{{"prefix_length": "this field can not be missing"}}}
	case !ok || length != math.Trunc(length):
		return answer{http.StatusBadRequest, []fields{{"prefix_length": fmt.Sprintf("%v is not a valid integer", o["prefix_length"])}}}
	case int(length) > within.Addr().BitLen() || length < 1:
		return answer{http.StatusBadRequest, []fields{{"prefix_length": fmt.Sprintf("Invalid prefix length (%d)", int(length))}}}
	}
	prefix, ok := s.free(within, int(length))
	if !ok {
		return detail(http.StatusConflict, "Insufficient space is available to accommodate the requested prefix size(s)")
	}
	if _, bad := s.checkPrefix(prefix.String(), 0); bad != nil {
		return *bad
	}
	custom, bad := s.custom(o)
	if bad == nil {
		bad = common(o)
	}
	if bad != nil {
		return *bad
	}
	status := plain(o["status"])
	if status == "" {
		status = "active"
	}
	site := parent["scope"]
	if s.options.Sites {
		site = parent["site"]
	} else if (o["scope_type"] == nil) != (o["scope_id"] == nil) {
		return invalid("__all__", "Please select a site.")
	}
	made := s.newPrefix(prefix, status, custom)
	made["description"] = plain(o["description"])
	if id, given := o["scope_id"].(float64); given && !s.options.Sites {
		s.setPlace(made, plain(o["scope_type"]), int(id), site)
	}
	if _, given := o["site"].(float64); given && s.options.Sites {
		s.setPlace(made, scopeSite, 0, site)
	}
	return answer{http.StatusCreated, made}
}

// free returns the first prefix of a length in a parent that no other prefix covers. Of a parent without prefixes that is the parent
// itself (get_available_prefixes in netbox/ipam/models/ip.py), which NetBox then refuses as a duplicate.
func (s *Server) free(within netip.Prefix, length int) (netip.Prefix, bool) {
	var b netipx.IPSetBuilder
	b.AddPrefix(within)
	for _, o := range s.books.Prefixes {
		if p, err := netip.ParsePrefix(plain(o["prefix"])); err == nil && p != within && within.Overlaps(p) && p.Bits() > within.Bits() {
			b.RemovePrefix(p)
		}
	}
	set, err := b.IPSet()
	if err != nil {
		return netip.Prefix{}, false
	}
	for _, p := range set.Prefixes() {
		if p.Bits() <= length {
			return netip.PrefixFrom(p.Addr(), length), true
		}
	}
	return netip.Prefix{}, false
}

// takeVLAN creates the first free VLAN of a group.
func (s *Server) takeVLAN(r *http.Request) answer {
	id := number(r.PathValue("id"), 0)
	group, ok := s.books.Groups[id]
	if !ok {
		return missing("VLANGroup")
	}
	o, bad := body(r)
	if bad != nil {
		return *bad
	}
	name, _ := o["name"].(string)
	if name == "" {
		return answer{http.StatusBadRequest, []fields{{"name": []string{"This field is required."}}}}
	}
	if len(name) > maxName {
		return answer{http.StatusBadRequest, []fields{{"name": []string{fmt.Sprintf("Ensure this field has no more than %d characters.", maxName)}}}}
	}
	taken := map[int]bool{}
	for _, v := range s.books.VLANs {
		if plain(member(v, "group", "id")) != strconv.Itoa(id) {
			continue
		}
		taken[number(plain(v["vid"]), 0)] = true
		if v["name"] == name {
			return invalid("__all__", "Constraint “ipam_vlan_unique_group_name” is violated.")
		}
	}
	custom, bad := s.custom(o)
	if bad == nil {
		bad = common(o)
	}
	if bad != nil {
		return *bad
	}
	first, last := rangeOf(group)
	for vid := first; vid <= last; vid++ {
		if taken[vid] {
			continue
		}
		made := fields{
			"id": s.nextID(), "vid": vid, "name": name, "status": fields{"value": "active", "label": "Active"}, "description": plain(o["description"]),
			"group": fields{"id": id, "slug": group["slug"]}, "custom_fields": custom,
		}
		s.books.VLANs[s.books.Next] = made
		return answer{http.StatusCreated, made}
	}
	return detail(http.StatusConflict, "Insufficient resources are available to satisfy the request")
}

func rangeOf(group fields) (first, last int) {
	text, _ := json.Marshal(group["vid_ranges"])
	var ranges [][]int
	if json.Unmarshal(text, &ranges) != nil || len(ranges) == 0 || len(ranges[0]) != 2 {
		return 1, 0
	}
	return ranges[0][0], ranges[0][1]
}

func (s *Server) addAddress(r *http.Request) answer {
	o, bad := body(r)
	if bad != nil {
		return *bad
	}
	address, bad := s.checkAddress(o, 0)
	if bad != nil {
		return *bad
	}
	custom, bad := s.custom(o)
	if bad == nil {
		bad = common(o)
	}
	if bad != nil {
		return *bad
	}
	id := s.nextID()
	s.books.Addresses[id] = fields{"id": id, "address": address.String(), "status": fields{"value": "active", "label": "Active"},
		"vrf": nil, "description": plain(o["description"]), "custom_fields": custom}
	return answer{http.StatusCreated, s.books.Addresses[id]}
}

// remove deletes an object, unless it is the VLAN of a prefix.
func (s *Server) remove(kind string, of func() map[int]fields) answerer {
	return func(r *http.Request) answer {
		id := number(r.PathValue("id"), 0)
		if _, ok := of()[id]; !ok {
			return missing(kind)
		}
		for _, p := range s.books.Prefixes {
			if kind == "VLAN" && plain(member(p, "vlan", "id")) == strconv.Itoa(id) {
				return detail(http.StatusConflict, "Unable to delete object. 1 dependent objects were found: %s (%v)", plain(p["prefix"]), p["id"])
			}
		}
		delete(of(), id)
		return answer{status: http.StatusNoContent}
	}
}

// Taken returns the prefixes, addresses and VLANs that requests have created.
func (s *Server) Taken() (prefixes, addresses []string, vlans []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.books.Prefixes)) {
		if p := s.books.Prefixes[id]; plain(member(p, "custom_fields", "vitistack_uid")) != "" {
			prefixes = append(prefixes, plain(p["prefix"]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.books.Addresses)) {
		addresses = append(addresses, plain(s.books.Addresses[id]["address"]))
	}
	for _, id := range slices.Sorted(maps.Keys(s.books.VLANs)) {
		vlans = append(vlans, number(plain(s.books.VLANs[id]["vid"]), 0))
	}
	return prefixes, addresses, vlans
}

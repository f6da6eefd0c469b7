package netbox

import (
	"net/http"
	"net/netip"
)

// patch changes an object. change changes the fields of its kind, except for the custom fields, and may be nil.
func (s *Server) patch(kind string, of func() map[int]fields, change func(id int, object, request fields) *answer) answerer {
	return func(r *http.Request) answer {
		id := number(r.PathValue("id"), 0)
		object, ok := of()[id]
		if !ok {
			return missing(kind)
		}
		o, bad := body(r)
		if bad == nil {
			bad = common(o)
		}
		if bad == nil && change != nil {
			bad = change(id, object, o)
		}
		if bad != nil {
			return *bad
		}
		mergeCustomFields(object, o)
		return answer{http.StatusOK, object}
	}
}

func (s *Server) changeAddress(id int, object, request fields) *answer {
	if request["address"] == nil {
		return nil
	}
	address, bad := s.checkAddress(request, id)
	if bad == nil {
		object["address"] = address.String()
	}
	return bad
}

func (s *Server) changePrefix(id int, object, request fields) *answer {
	if vlanID, given := request["vlan"].(float64); given {
		vlan, ok := s.books.VLANs[int(vlanID)]
		if !ok {
			return refuse("vlan", "Related object not found using the provided numeric ID: %d", int(vlanID))
		}
		object["vlan"] = fields{"id": int(vlanID), "vid": vlan["vid"], "name": vlan["name"]}
	}
	text, given := request["prefix"].(string)
	if !given {
		return nil
	}
	prefix, bad := s.checkPrefix(text, id)
	if bad == nil {
		object["prefix"], object["display"] = prefix.String(), prefix.String()
	}
	return bad
}

// checkAddress returns the address in a request about the object with an ID, or about a new one with 0.
func (s *Server) checkAddress(o fields, id int) (netip.Prefix, *answer) {
	text, _ := o["address"].(string)
	address, err := netip.ParsePrefix(text)
	switch {
	case text == "":
		return address, refuse("address", "This field is required.")
	case err != nil:
		return address, refuse("address", "Invalid IP address format: %s", text)
	}
	for other, a := range s.books.Addresses {
		if p, err := netip.ParsePrefix(plain(a["address"])); err == nil && other != id && p.Addr() == address.Addr() {
			return address, refuse("address", "Duplicate IP address found in global table: %s", plain(a["address"]))
		}
	}
	return address, nil
}

// checkPrefix returns the prefix in a request about the object with an ID (prefix_validator in netbox/ipam/validators.py, and
// Prefix.clean in netbox/ipam/models/ip.py). The addresses in a prefix that is resized keep their masks.
func (s *Server) checkPrefix(text string, id int) (netip.Prefix, *answer) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return prefix, refuse("prefix", "Invalid IP address format: %s", text)
	case prefix != prefix.Masked():
		return prefix, refuse("prefix", "%s is not a valid prefix. Did you mean %s?", prefix, prefix.Masked())
	}
	for other, p := range s.books.Prefixes {
		if other != id && p["prefix"] == prefix.String() {
			return prefix, refuse("prefix", "Duplicate prefix found in global table: %s", prefix)
		}
	}
	return prefix, nil
}

// refuse is invalid for functions that return no answer if they accept.
func refuse(field, format string, args ...any) *answer {
	a := invalid(field, format, args...)
	return &a
}

// mergeCustomFields keeps the custom fields that a change leaves out, as CustomFieldsDataField of NetBox does
// (netbox/extras/api/customfields.py).
func mergeCustomFields(object, change fields) {
	given, ok := change["custom_fields"].(fields)
	if !ok {
		return
	}
	merged := fields{}
	for _, from := range []any{object["custom_fields"], given} {
		for name, value := range from.(fields) {
			merged[name] = value
		}
	}
	object["custom_fields"] = merged
}

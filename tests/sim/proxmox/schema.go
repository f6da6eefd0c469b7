package proxmox

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kind is a type of Proxmox VE's dialect of JSON schema.
type kind string

const (
	kindString  kind = "string"
	kindInteger kind = "integer"
	kindNumber  kind = "number"
	kindBoolean kind = "boolean"
)

// rule describes one parameter, or one key of a property string.
type rule struct {
	kind     kind
	required bool
	// isDefault marks the key of a property string whose name is optional.
	isDefault bool
	min, max  *float64
	maxLength int
	values    []string
	pattern   *regexp.Regexp
	format    func(string) error
	// properties are the keys of a property string.
	properties schema
	// alias is the key that this one is an alias of. keyAlias is the key whose value is the name of
	// this one.
	alias, keyAlias string
	requires        string
	// since is the first major release that has the parameter. 0 means all.
	since int
}

// schema has rules by name.
type schema map[string]rule

func text() rule    { return rule{kind: kindString} }
func integer() rule { return rule{kind: kindInteger} }
func number() rule  { return rule{kind: kindNumber} }
func boolean() rule { return rule{kind: kindBoolean} }

func (r rule) must() rule                  { r.required = true; return r }
func (r rule) byDefault() rule             { r.isDefault = true; return r }
func (r rule) from(n float64) rule         { r.min = &n; return r }
func (r rule) to(n float64) rule           { r.max = &n; return r }
func (r rule) atMost(n int) rule           { r.maxLength = n; return r }
func (r rule) oneOf(values ...string) rule { r.values = values; return r }
func (r rule) like(pattern string) rule {
	r.pattern = regexp.MustCompile("^(?:" + pattern + ")$")
	return r
}
func (r rule) with(check func(string) error) rule { r.format = check; return r }
func (r rule) of(properties schema) rule          { r.properties = properties; return r }
func (r rule) needs(other string) rule            { r.requires = other; return r }
func (r rule) newIn(release int) rule             { r.since = release; return r }

func vmid() rule    { return integer().from(100).to(999999999).with(isVMID) }
func node() rule    { return text().with(isNode) }
func storage() rule { return text().with(isStorage) }
func dnsName() rule { return text().with(isDNSName) }

// merge returns a schema with the rules of several schemas.
func merge(all ...schema) schema {
	merged := schema{}
	for _, s := range all {
		maps.Copy(merged, s)
	}
	return merged
}

// numbered returns rules for name0 to name<n-1>.
func numbered(name string, n int, r rule) schema {
	s := schema{}
	for i := range n {
		s[name+strconv.Itoa(i)] = r
	}
	return s
}

// check returns the parameters as text, or the error of each invalid parameter in the words of Proxmox
// VE of a major release.
func (s schema) check(given map[string]any, release int) (params, wrong map[string]string) {
	params, wrong = map[string]string{}, map[string]string{}
	for name, value := range given {
		r, known := s[name]
		if !known || r.since > release {
			wrong[name] = "property is not defined in schema and the schema does not allow additional properties"
			continue
		}
		if value == nil {
			continue
		}
		written, problem := r.write(value)
		if problem == "" {
			problem = r.problem(name, written)
		}
		if problem != "" {
			wrong[name] = problem
			continue
		}
		params[name] = written
	}
	for name, r := range s {
		if _, has := given[name]; r.required && !has {
			wrong[name] = "property is missing and it is not optional"
		}
		if _, has := given[name]; has && r.requires != "" {
			if _, also := given[r.requires]; !also {
				wrong[r.requires] = fmt.Sprintf("missing property - '%s' requires this property", name)
			}
		}
	}
	return params, wrong
}

// write formats a JSON value as text.
func (r rule) write(value any) (written, problem string) {
	got := ""
	switch v := value.(type) {
	case string:
		return v, ""
	case json.Number:
		return v.String(), ""
	case bool:
		if r.kind == kindBoolean {
			return map[bool]string{true: "1", false: "0"}[v], ""
		}
		got = "JSON::PP::Boolean"
	case []any:
		got = "ARRAY"
	default:
		got = "HASH"
	}
	return "", fmt.Sprintf("type check ('%s') failed - got %s", r.kind, got)
}

var (
	isInteger = regexp.MustCompile(`^[+-]?\d+$`)
	isNumber  = regexp.MustCompile(`^[+-]?(\d+\.\d+|\d+\.|\.\d+|\d+)([eE][+-]?\d+)?$`)
)

// problem returns what is wrong with a value, or an empty string.
func (r rule) problem(path, value string) string {
	typed := r.kind == kindString ||
		(r.kind == kindBoolean && (value == "0" || value == "1")) ||
		(r.kind == kindInteger && isInteger.MatchString(value)) ||
		(r.kind == kindNumber && isNumber.MatchString(value))
	if !typed {
		return fmt.Sprintf("type check ('%s') failed - got '%s'", r.kind, value)
	}
	if r.format != nil {
		if err := r.format(value); err != nil {
			return "invalid format - " + err.Error() + "\n"
		}
	}
	if r.properties != nil {
		if _, err := r.properties.parse(path, value); err != nil {
			return "invalid format - " + err.Error() + "\n"
		}
	}
	if r.pattern != nil && !r.pattern.MatchString(value) {
		return "value does not match the regex pattern"
	}
	if r.maxLength > 0 && len(value) > r.maxLength {
		return fmt.Sprintf("value may only be %d characters long", r.maxLength)
	}
	if n, err := strconv.ParseFloat(value, 64); err == nil {
		switch {
		case r.max != nil && n > *r.max:
			return fmt.Sprintf("value must have a maximum value of %.0f", *r.max)
		case r.min != nil && n < *r.min:
			return fmt.Sprintf("value must have a minimum value of %.0f", *r.min)
		}
	}
	if r.values != nil && !slices.Contains(r.values, value) {
		return fmt.Sprintf("value '%s' does not have a value in the enumeration '%s'", value, strings.Join(r.values, ", "))
	}
	return ""
}

// parse parses a property string such as "virtio=02:00:00:00:00:01,bridge=vmbr0".
func (s schema) parse(path, value string) (map[string]string, error) {
	found := map[string]string{}
	for part := range strings.SplitSeq(value, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, v, hasKey := strings.Cut(part, "=")
		if !hasKey {
			key, v = s.defaultKey(), part
			if key == "" {
				return nil, errors.New("value without key, but schema does not define a default key")
			}
			if _, twice := found[key]; twice {
				return nil, fmt.Errorf("duplicate key in comma-separated list property: %s", key)
			}
		}
		if err := s.set(found, key, v); err != nil {
			return nil, err
		}
	}
	var wrong []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		v, has := found[key]
		problem := ""
		if has {
			problem = s[key].problem(path+"."+key, v)
		} else if s[key].required {
			problem = "property is missing and it is not optional"
		}
		if problem != "" {
			wrong = append(wrong, fmt.Sprintf("%s.%s: %s", path, key, problem))
		}
	}
	if wrong != nil {
		return nil, errors.New("format error\n" + strings.Join(wrong, "\n"))
	}
	return found, nil
}

func (s schema) set(found map[string]string, key, value string) error {
	r, known := s[key]
	if r.alias != "" {
		if r.keyAlias != "" {
			if _, twice := found[r.keyAlias]; twice {
				return fmt.Errorf("key alias '%s' is already defined", r.keyAlias)
			}
			found[r.keyAlias] = key
		}
		key = r.alias
		r, known = s[key]
	}
	if _, twice := found[key]; twice {
		return fmt.Errorf("duplicate key in comma-separated list property: %s", key)
	}
	if !known {
		return fmt.Errorf("invalid key in comma-separated list property: %s", key)
	}
	if r.kind == kindBoolean {
		value = parseBoolean(value)
	}
	found[key] = value
	return nil
}

func (s schema) defaultKey() string {
	for key, r := range s {
		if r.isDefault {
			return key
		}
	}
	return ""
}

func parseBoolean(s string) string {
	switch strings.ToLower(s) {
	case "1", "on", "yes", "true":
		return "1"
	case "0", "off", "no", "false":
		return "0"
	}
	return s
}

package preview

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/apis/changes"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Change is a field of a spec with another value than before.
type Change struct {
	// Field is the path in the spec. An item of a list has its name in brackets.
	Field string `json:"field"`
	// From and To are the values. An absent field has none.
	From any `json:"from,omitempty"`
	To   any `json:"to,omitempty"`
	// Outcome is what the change leads to, and Effect what happens and why.
	Outcome changes.Outcome `json:"outcome"`
	Effect  string          `json:"effect,omitempty"`
	// pointer is the JSON pointer of the field in the new object. An item that it lacks keeps its name there.
	pointer string
}

// hidden stands for values that may contain passwords and keys.
const hidden = "(not shown)"

// secretFields are the fields with such values.
var secretFields = []string{"cloudInit.userData", "cloudInit.networkData"}

// changes returns the fields of the spec that change, with what each change leads to. A change that the
// API server refuses is an error, too.
func (m *maker) changes() []Change {
	kind := m.result.Kind
	before, _ := m.of.Before.Object["spec"].(map[string]any)
	after, _ := cmp.Or(m.of.After, m.of.Object).Object["spec"].(map[string]any)
	d := difference{kind: kind, found: []Change{}}
	d.objects("", "/spec", before, after)
	on := m.variant()
	for i := range d.found {
		c := &d.found[i]
		m.explain(c, on)
		if slices.Contains(secretFields, c.Field) {
			c.From, c.To = hide(c.From), hide(c.To)
		}
	}
	return d.found
}

func hide(value any) any {
	if value == nil {
		return nil
	}
	return hidden
}

// explain adds the outcome and the effect of a change.
func (m *maker) explain(c *Change, on string) {
	e, known := findEffect(m.result.Kind, c.Field, on)
	isNamed := slices.ContainsFunc(m.of.Refusals, func(f Finding) bool { return strings.Contains(f.Detail, e.Text) })
	if !known || e.Outcome.IsRefusal() && m.of.Checked && !isNamed {
		c.Outcome = changes.Applied
		return
	}
	c.Outcome, c.Effect = e.Outcome, e.Text
	if len(m.of.Refusals) == 0 && e.Outcome.IsRefusal() {
		m.refuse(c.pointer, "", "spec."+c.Field+": "+e.Text)
	}
}

// markRefused sets the outcome of the changes that refusals are about. A refusal of the whole spec names its field in the text only.
func (m *maker) markRefused(refusals []Finding) {
	for i := range m.result.Changes {
		c := &m.result.Changes[i]
		isMeant := func(f Finding) bool {
			return f.Pointer != "" && f.Pointer != "/spec" && (isWithin(c.pointer, f.Pointer) || isWithin(f.Pointer, c.pointer))
		}
		if !c.Outcome.IsRefusal() && slices.ContainsFunc(refusals, isMeant) {
			c.Outcome, c.Effect = changes.Refused, ""
		}
	}
}

// isWithin reports whether a pointer is another one or leads to a part of it.
func isWithin(pointer, other string) bool { return strings.HasPrefix(pointer+"/", other+"/") }

// findEffect returns what package changes says of a field. An item of a list, or an object, that is added or
// removed as a whole has the effect of its name, or else of its first field.
func findEffect(kind, field, on string) (changes.Effect, bool) {
	path := schemaPath(field)
	for _, candidate := range []string{path, path + ".name"} {
		if e, known := changes.Find(kind, candidate, on); known {
			return e, true
		}
	}
	for _, e := range changes.Of(kind) {
		if strings.HasPrefix(e.Field, path+".") || strings.HasPrefix(e.Field, path+"[]") {
			return changes.Find(kind, e.Field, on)
		}
	}
	return changes.Effect{}, false
}

// schemaPath returns a field as package changes writes it: topology.workers[a].name as
// topology.workers[].name.
func schemaPath(field string) string {
	var b strings.Builder
	for rest := field; ; {
		before, after, isItem := strings.Cut(rest, "[")
		b.WriteString(before)
		if !isItem {
			return b.String()
		}
		b.WriteString("[]")
		_, rest, _ = strings.Cut(after, "]")
	}
}

// variant returns for which objects of its kind the effects of a change are looked up.
func (m *maker) variant() string {
	spec := func(path ...string) string { return text(m.of.Before.Object, append([]string{"spec"}, path...)...) }
	switch m.result.Kind {
	case "Machine":
		name := cmp.Or(text(m.of.Before.Object, "status", "provider"), spec("providerRef", "name"))
		i := slices.IndexFunc(m.world.Providers, func(p v1alpha1.MachineProvider) bool { return p.Name == name })
		if i >= 0 && m.world.Providers[i].Spec.Type == v1alpha1.ProviderProxmox {
			return "Proxmox VE"
		}
		return "KubeVirt"
	case "MachineProvider":
		return "type " + spec("type")
	case "NetworkNamespace":
		if spec("ipAllocation", "type") == "dhcp" {
			return "dhcp"
		}
		return cmp.Or(spec("networkProvisioning", "provider"), "manual")
	case "EtcdBackup":
		if spec("schedule") == "" {
			return "once"
		}
		return "local"
	}
	return ""
}

// text returns a field of an object, or nothing if it is no text.
func text(o any, path ...string) string {
	for _, name := range path {
		object, _ := o.(map[string]any)
		o = object[name]
	}
	s, _ := o.(string)
	return s
}

// difference collects the fields in which two specs differ.
type difference struct {
	kind  string
	found []Change
}

// objects compares two objects field by field, in alphabetical order.
func (d *difference) objects(path, pointer string, before, after map[string]any) {
	names := slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		d.values(strings.TrimPrefix(path+"."+name, "."), pointer+"/"+name, before[name], after[name])
	}
}

// values compares two values. It looks into objects unless package changes knows them as one field, and
// into lists whose items have names.
func (d *difference) values(path, pointer string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	_, isField := changes.Find(d.kind, schemaPath(path), "")
	was, wasObject := before.(map[string]any)
	is, isObject := after.(map[string]any)
	if !isField && (wasObject || before == nil) && (isObject || after == nil) {
		d.objects(path, pointer, was, is)
		return
	}
	formerItems, wasList := named(before)
	items, isList := named(after)
	if isField || !(wasList || before == nil) || !(isList || after == nil) {
		d.found = append(d.found, Change{Field: path, From: before, To: after, pointer: pointer})
		return
	}
	names := slices.Concat(slices.Collect(maps.Keys(formerItems)), slices.Collect(maps.Keys(items)))
	slices.Sort(names)
	list, _ := after.([]any)
	for _, name := range slices.Compact(names) {
		item, at := path+"["+name+"]", pointer+"/"+name
		if i := slices.IndexFunc(list, func(item any) bool { return nameOf(item) == name }); i >= 0 {
			at = pointer + "/" + strconv.Itoa(i)
		}
		if formerItems[name] == nil || items[name] == nil {
			d.found = append(d.found, Change{Field: item, From: orNil(formerItems[name]), To: orNil(items[name]), pointer: at})
			continue
		}
		d.objects(item, at, formerItems[name], items[name])
	}
}

func orNil(item map[string]any) any {
	if item == nil {
		return nil
	}
	return item
}

// nameOf returns what tells an item from the others of its list, or nothing.
func nameOf(item any) string {
	return cmp.Or(text(item, "name"), text(item, "key"), text(item, "macAddress"))
}

// named returns the items of a list by their name, key or MAC address. It reports false for a list whose
// items are no objects or have none of them.
func named(value any) (map[string]map[string]any, bool) {
	list, ok := value.([]any)
	items := map[string]map[string]any{}
	for _, one := range list {
		item, _ := one.(map[string]any)
		name := nameOf(item)
		if name == "" || items[name] != nil {
			return nil, false
		}
		items[name] = item
	}
	return items, ok
}

package changes

import (
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// specsOf has, for objects of the stand whose effects depend on it, the spec that a preview reads.
var specsOf = map[string]string{
	"manual": "{networkProvisioning: {provider: manual}}", "dhcp": "{ipAllocation: {type: dhcp}}", "nam": "{networkProvisioning: {provider: nam}}", "netbox": "{networkProvisioning: {provider: netbox}}",
	"type kubevirt": "{type: kubevirt}", "type proxmox": "{type: proxmox}",
	"KubeVirt": "{providerRef: {name: kubevirt}}", "Proxmox VE": "{providerRef: {name: proxmox}}",
	"local": "{schedule: daily}", "once": "{}",
}

// TestPreviewSaysTheSame changes the field of each row in a preview, which has to say what the row proves.
func TestPreviewSaysTheSame(t *testing.T) {
	t.Parallel()
	compared := 0
	for kind, rows := range allRows() {
		for _, r := range rows {
			spec, known := specsOf[r.on]
			if !known && len(rowsOf(leaf{kind: kind, path: r.field})) > 1 {
				continue // another row has the effect of this field that the preview names
			}
			if !known {
				spec = "{}"
			}
			c, ok := previewOf(t, kind, r, spec)
			switch {
			case !ok:
				t.Errorf("%s spec.%s of %s: the preview of %s has no change of it", kind, r.field, r.on, r.to)
			case c.Outcome != r.Outcome || c.Effect != r.Text:
				t.Errorf("%s spec.%s of %s: the preview says %s, %q, and the row proves %s, %q", kind, r.field, r.on, c.Outcome, c.Effect, r.Outcome, r.Text)
			}
			compared++
		}
	}
	if compared < 200 {
		t.Errorf("only %d rows were compared", compared)
	}
}

// previewOf returns the change of a row's field in a preview. Both objects have the item of a list that the field
// is in, with a name.
func previewOf(t *testing.T, kind string, r row, spec string) (preview.Change, bool) {
	t.Helper()
	before, _ := parse(spec).(map[string]any)
	after, _ := parse(spec).(map[string]any)
	if r.on != "once" || r.field != "schedule" { // which it is by having none
		set(before, r.field, "the value before")
	}
	set(after, r.field, parse("the value after"))
	for _, s := range []map[string]any{before, after} {
		nameItems(s)
	}
	object := func(spec map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "vitistack.io/v1alpha1", "kind": kind, "spec": spec}}
		o.SetName("x")
		return o
	}
	world := preview.World{Providers: make([]v1alpha1.MachineProvider, 2), Classes: make([]v1alpha1.MachineClass, 1)}
	world.Classes[0].Name = "the value after"
	world.Providers[0].Name, world.Providers[0].Spec.Type = "kubevirt", v1alpha1.ProviderKubeVirt
	world.Providers[1].Name, world.Providers[1].Spec.Type = "proxmox", v1alpha1.ProviderProxmox
	was := object(before)
	if kind == "Machine" {
		was.Object["status"] = map[string]any{"provider": get(parse(specsOf[r.on]), "providerRef.name")}
	}
	p := preview.Make([]preview.Document{{Index: 1, Object: object(after), Before: was, After: object(maps.Clone(after))}}, world)
	for _, c := range p.Documents[0].Changes {
		return c, true
	}
	return preview.Change{}, false
}

// nameItems gives the items of lists a name, by which a preview compares them.
func nameItems(spec any) {
	object, _ := spec.(map[string]any)
	for name, value := range object {
		if list, isList := value.([]any); isList {
			for _, one := range list {
				if item, isObject := one.(map[string]any); isObject && item["name"] == nil && item["key"] == nil {
					item["name"] = "x"
				}
				nameItems(one)
			}
			continue
		}
		nameItems(object[name])
	}
}

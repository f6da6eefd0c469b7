package addons_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

var cilium = v1alpha1.ClusterAddon{Name: "cilium", ConfigMap: "cilium"}

func object(kind, name string) string {
	return "apiVersion: v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n"
}

func TestRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		files  map[string]string
		want   []string
		error  string
	}{
		"Order": {"the files are applied in the order of their names, and first what others need", map[string]string{
			"b.yaml": object("Namespace", "shop") + "---\n" + object("Service", "web"),
			"a.yaml": object("ValidatingWebhookConfiguration", "hook") + "--- # next\n" + object("ConfigMap", "settings") + "---\n" + object("CustomResourceDefinition", "things"),
		}, []string{"Namespace shop (b.yaml line 1)", "CustomResourceDefinition things (a.yaml line 10)", "ConfigMap settings (a.yaml line 5)",
			"Service web (b.yaml line 5)", "ValidatingWebhookConfiguration hook (a.yaml line 1)"}, ""},
		"Namespaced": {"the message names the namespace", map[string]string{"a": "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}}"},
			[]string{"Secret shop/s (a line 1)"}, ""},
		"Empty documents": {"charts begin and end with separators and comments", map[string]string{"a": "---\n# Source: x\n---\n" + object("Secret", "s") + "---\n\n"},
			[]string{"Secret s (a line 3)"}, ""},
		"List": {"kubectl get -o yaml writes lists", map[string]string{"a": "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s, uid: x, resourceVersion: '1', managedFields: []}}\n"},
			[]string{"Secret s (a line 1, item 1)"}, ""},
		"Separator in a text": {"only the begin of a line separates documents", map[string]string{"a": object("ConfigMap", "c") + "data:\n  x: |\n    ---\n    y\n"},
			[]string{"ConfigMap c (a line 1)"}, ""},
		"No YAML": {"the line is that of the file", map[string]string{"a": object("Secret", "s") + "---\nkind: [\n"},
			nil, "add-on cilium: ConfigMap cilium, a line 6: this is no YAML: did not find expected node content"},
		"No apiVersion": {"the field is named", map[string]string{"a": "kind: Secret\n"}, nil, "a line 1: write apiVersion"},
		"No kind":       {"the field is named", map[string]string{"a": "apiVersion: v1\n"}, nil, "a line 1: write kind"},
		"No name":       {"the same object is applied each time", map[string]string{"a": "{apiVersion: v1, kind: Secret, metadata: {generateName: s-}}"}, nil, "a line 1: write metadata.name of the Secret"},
		"Name":          {"YAML reads no, off and numbers as something else", map[string]string{"a": "{apiVersion: v1, kind: Secret, metadata: {name: off}}"}, nil, "a line 1: metadata.name of the Secret is no text: put it into quotes"},
		"Text":          {"Helm's notes are no manifest", map[string]string{"a": "thank you"}, nil, "a line 1: this is no object"},
		"Item":          {"an item of a list is an object", map[string]string{"a": "{apiVersion: v1, kind: List, items: [x]}"}, nil, "a line 1, item 1: this is no object"},
		"Nothing":       {"an empty ConfigMap is a mistake", nil, nil, "ConfigMap cilium has no object: write manifests into it"},
		"Too many":      {"each object costs a request", map[string]string{"a": strings.Repeat(object("Secret", "s")+"---\n", 1001)}, nil, "more than 1000 objects: split it"},
	} {
		got, err := addons.Read(cilium, tc.files)
		var names []string
		for _, o := range got.Objects {
			names = append(names, o.String())
			if len(o.GetManagedFields())+len(o.GetUID())+len(o.GetResourceVersion()) > 0 {
				t.Errorf("%s: the API server refuses %v", name, o.Object)
			}
		}
		if diff := cmp.Diff(tc.want, names); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
		var problem usererror.Error
		if is := errors.As(err, &problem); is != (tc.error != "") || is && (problem.Reason != addons.ReasonInvalid || !strings.Contains(problem.Message, tc.error)) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.error)
		}
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	digest := func(files map[string]string) string {
		m, err := addons.Read(cilium, files)
		if err != nil {
			t.Fatal(err)
		}
		return m.Digest
	}
	a, b := object("Secret", "a"), object("Secret", "b")
	one := digest(map[string]string{"a": a, "b": b})
	if again := digest(map[string]string{"b": b, "a": a}); again != one {
		t.Errorf("the same files have %s and %s", one, again)
	}
	for reason, files := range map[string]map[string]string{
		"the content differs":         {"a": a, "b": b + "type: Opaque\n"},
		"the name of a file differs":  {"a": a, "c": b},
		"the files are one":           {"a": a + "---\n" + b},
		"the contents have exchanged": {"a": b, "b": a},
	} {
		if digest(files) == one {
			t.Errorf("%s, and the digest does not", reason)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	m, err := addons.Read(cilium, map[string]string{"a": object("CustomResourceDefinition", "things.example.com") + "spec: {group: example.com, names: {kind: Thing}}\n---\n" + object("Secret", "s")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]schema.GroupKind{{Group: "example.com", Kind: "Thing"}}, m.Kinds); diff != "" {
		t.Errorf("a definition is for its group and kind (-want +got):\n%s", diff)
	}
}

func TestNeedsRead(t *testing.T) {
	t.Parallel()
	byURL := v1alpha1.ClusterAddon{Name: "cilium", URL: "https://example.com/1.yaml"}
	applied := func(a v1alpha1.ClusterAddon) v1alpha1.AddonStatus {
		return v1alpha1.AddonStatus{Name: "cilium", Source: addons.Source(a), Digest: "sha256:1"}
	}
	refused := applied(byURL)
	refused.Message = "refused"
	for name, tc := range map[string]struct {
		reason          string
		addon           v1alpha1.ClusterAddon
		last            v1alpha1.AddonStatus
		full, requested bool
		want            bool
	}{
		"New":            {"nothing is applied", cilium, v1alpha1.AddonStatus{}, false, false, true},
		"Refused":        {"its user may have corrected it", byURL, refused, false, false, true},
		"Other URL":      {"another version has another URL", v1alpha1.ClusterAddon{Name: "cilium", URL: "https://example.com/2.yaml"}, applied(byURL), false, false, true},
		"Requested":      {"a user has asked for it", byURL, applied(byURL), false, true, true},
		"URL":            {"a URL is read once", byURL, applied(byURL), true, false, false},
		"Full":           {"the ConfigMap may have changed, and sends no event", cilium, applied(cilium), true, false, true},
		"Other delivery": {"a delivery of a new cluster costs no request", cilium, applied(cilium), false, false, false},
	} {
		if got := addons.NeedsRead(tc.addon, tc.last, tc.full, tc.requested); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

// hosts allows one host, or wraps why its list cannot be read.
type hosts struct {
	host   string
	broken error
}

func (h hosts) CheckURL(address string) error {
	switch {
	case h.broken != nil:
		return fmt.Errorf("the list: %w", h.broken)
	case strings.HasPrefix(address, "https://"+h.host+"/"):
		return nil
	}
	return errors.New("another host")
}

func TestCheckHost(t *testing.T) {
	t.Parallel()
	at := v1alpha1.ClusterAddon{Name: "metrics", URL: "https://example.com/metrics.yaml"}
	for name, tc := range map[string]struct {
		reason  string
		addon   v1alpha1.ClusterAddon
		allowed addons.HostRules
		want    string
	}{
		"Allowed":   {"the platform team lists the host", at, hosts{host: "example.com"}, ""},
		"Other":     {"another host is not listed", at, hosts{host: "example.org"}, "add-on metrics: manifests are not read from example.com: put them into a ConfigMap"},
		"No list":   {"nothing is allowed without a list", at, addons.NoHosts{}, "have the host added to ALLOWED_ADDON_HOSTS"},
		"Broken":    {"the list itself is wrong", at, hosts{broken: errors.New("write names")}, "write names"},
		"ConfigMap": {"a ConfigMap is no host", cilium, nil, ""},
	} {
		err := addons.CheckHost(tc.addon, tc.allowed)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}

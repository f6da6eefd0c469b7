package addons_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/cluster/addons"
)

func talosObject(kind, name string, spec any) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
}

func podsOf(image, arg string) map[string]any {
	container := map[string]any{"name": "main", "image": image, "command": []string{"run", arg}}
	return map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}}
}

func TestNewTalosManifest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, id string
		want       bool
	}{
		"Inline":     {"a patch has it", "99-banner", true},
		"Extra":      {"a patch has its URL", "30-https://example.com/a.yaml", true},
		"CNI":        {"a patch has its URL", "05-https://example.com/cni.yaml", true},
		"Flannel":    {"its settings can be changed", "05-flannel", true},
		"Kube-proxy": {"its settings can be changed", "10-kube-proxy", true},
		"Token":      {"it has a secret, and no setting", "00-kubelet-bootstrapping-token", false},
		"CoreDNS":    {"only its image can be changed, which plan.Addon does", "11-core-dns", false},
	} {
		if _, got := addons.NewTalosManifest(tc.id, nil); got != tc.want {
			t.Errorf("%s: it can be changed: %t, although %s", name, got, tc.reason)
		}
	}
	m, _ := addons.NewTalosManifest("99-banner", []map[string]any{talosObject("Secret", "s", 1), {"kind": "Secret"}, talosObject("Namespace", "n", nil)})
	var names []string
	for _, o := range m.Objects {
		names = append(names, o.GetKind()+" "+o.GetName())
	}
	if got := strings.Join(names, ", "); got != "Namespace n, Secret s" {
		t.Errorf("the objects are %s", got)
	}
}

func TestChangedTalosManifests(t *testing.T) {
	t.Parallel()
	manifest := func(id, image, arg string) addons.TalosManifest {
		m, _ := addons.NewTalosManifest(id, []map[string]any{talosObject("DaemonSet", "main", podsOf(image, arg))})
		return m
	}
	for name, tc := range map[string]struct {
		reason        string
		before, after addons.TalosManifest
		want          bool
	}{
		"Same":           {"there is nothing to do", manifest("99-a", "a:1", "x"), manifest("99-a", "a:1", "x"), false},
		"Changed":        {"Talos changes nothing that exists", manifest("99-a", "a:1", "x"), manifest("99-a", "a:1", "y"), true},
		"Image":          {"a user has written it", manifest("99-a", "a:1", "x"), manifest("99-a", "a:2", "x"), true},
		"URL":            {"control planes read it at different times", manifest("30-https://a", "a:1", "x"), manifest("30-https://a", "a:2", "x"), false},
		"Other URL":      {"it is another version", manifest("30-https://a", "a:1", "x"), manifest("30-https://b", "a:2", "x"), true},
		"New":            {"its objects may exist already", addons.TalosManifest{}, manifest("99-a", "a:1", "x"), true},
		"Settings":       {"Talos changes nothing that exists", manifest("10-kube-proxy", "a:1", "x"), manifest("10-kube-proxy", "a:1", "y"), true},
		"Upgrade":        {"an upgrade gives kube-proxy its image", manifest("10-kube-proxy", "a:1", "x"), manifest("10-kube-proxy", "a:2", "x"), false},
		"First settings": {"Talos has created them, and a user may have changed them", addons.TalosManifest{}, manifest("10-kube-proxy", "a:1", "x"), false},
	} {
		applied := map[string]string{tc.before.Name: tc.before.Digest}
		present := []addons.TalosManifest{tc.after}
		changed := addons.ChangedTalosManifests(applied, present, false)
		if (len(changed) > 0) != tc.want {
			t.Errorf("%s: %d are applied, although %s", name, len(changed), tc.reason)
		}
		record := addons.RecordTalosManifests(applied, present, nil, nil)
		if d := cmp.Diff(map[string]string{tc.after.Name: tc.after.Digest}, record); d != "" {
			t.Errorf("%s: the record differs (-want +got):\n%s", name, d)
		}
		if again := addons.ChangedTalosManifests(record, present, false); len(again) > 0 {
			t.Errorf("%s: it is applied again", name)
		}
		if isOfUser := !strings.HasPrefix(tc.after.Name, "10-"); (len(addons.ChangedTalosManifests(record, present, true)) > 0) != isOfUser {
			t.Errorf("%s: a requested reconcile applies manifests of users, and no others", name)
		}
		if again := addons.RecordTalosManifests(applied, present, map[string]bool{tc.after.Name: true}, nil); tc.want && len(addons.ChangedTalosManifests(again, present, false)) == 0 {
			t.Errorf("%s: it is not applied again after it has failed", name)
		}
	}
	if record := addons.RecordTalosManifests(map[string]string{"99-a": "x"}, nil, nil, nil); record != nil {
		t.Errorf("the record keeps %v of a manifest that is gone", record)
	}
}

func TestWithoutChanged(t *testing.T) {
	t.Parallel()
	present := []addons.TalosManifest{{Name: "99-changed", Digest: "new"}, {Name: "99-same", Digest: "same"}, {Name: "99-begun", Digest: "new"}, {Name: "99-unknown", Digest: "new"}}
	images := map[string]string{"kube-proxy": "v1", "coredns": "v2"}
	applied := map[string]string{"99-changed": "old", "99-same": "same", "99-begun": "", "99-gone": "old", "kube-proxy": "v1", "coredns": "v1"}
	kept, isOther := addons.WithoutChanged(applied, present, images)
	want := map[string]string{"99-changed": "", "99-same": "same", "99-begun": "", "99-gone": "old", "kube-proxy": "v1", "coredns": ""}
	if diff := cmp.Diff(want, kept); diff != "" || !isOther {
		t.Errorf("there is a change: %t (-want +got):\n%s", isOther, diff)
	}
	if again, isOther := addons.WithoutChanged(kept, present, images); isOther || !cmp.Equal(kept, again) {
		t.Errorf("a second call changes %v", again)
	}
	if kept, isOther := addons.WithoutChanged(nil, present, nil); isOther || len(kept) > 0 {
		t.Errorf("a new cluster has nothing, got %v", kept)
	}
}

package addons

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TalosManifest is a manifest that a control plane renders from its machine configuration. Talos creates its objects
// if they do not exist, and never changes them (manifest_apply.go in internal/app/machined/pkg/controllers/k8s).
type TalosManifest struct {
	// Name is the ID of the resource in Talos, and Digest identifies the content.
	Name, Digest string
	Objects      []Manifest
	// isSettings is whether Talos renders the objects from settings, and isURL whether it reads them from a URL.
	isSettings, isURL bool
}

// The manifests that Talos renders from settings which a machine configuration may change: cluster.network.cni.flannel and
// cluster.proxy.
const (
	talosFlannel   = "05-flannel"
	talosKubeProxy = "10-kube-proxy"
)

// NewTalosManifest returns a manifest by its ID in Talos and its objects. It returns false for the manifests that no
// machine configuration changes:
//
//	99-NAME                     cluster.inlineManifests
//	30-URL                      cluster.extraManifests
//	05-URL                      cluster.network.cni.urls
//	05-flannel, 10-kube-proxy   settings
//	others                      false
//
// The images of settings are no part of the digest, because an upgrade changes them. The digest of a URL is that of the
// URL: each control plane reads it at its boot, so that their contents may differ.
func NewTalosManifest(id string, objects []map[string]any) (TalosManifest, bool) {
	m := TalosManifest{Name: id, isSettings: id == talosFlannel || id == talosKubeProxy}
	priority, _, _ := strings.Cut(id, "-")
	m.isURL = !m.isSettings && (priority == "05" || priority == "30")
	if !m.isSettings && !m.isURL && priority != "99" {
		return m, false
	}
	for i, content := range objects {
		o := &unstructured.Unstructured{}
		text, err := json.Marshal(content) // a decoder of YAML has other types of numbers
		if err == nil {
			err = json.Unmarshal(text, &o.Object)
		}
		if err != nil {
			continue
		}
		found, err := check(o, fmt.Sprintf("object %d", i+1))
		if err != nil {
			continue // Talos creates no object without kind and name either
		}
		m.Objects = append(m.Objects, found...)
	}
	sortByNeed(m.Objects)
	m.Digest = m.digest()
	return m, true
}

// digest returns a digest of the objects.
func (m TalosManifest) digest() string {
	if m.isURL {
		return digest(map[string]string{"url": m.Name})
	}
	contents := map[string]string{}
	for i, o := range m.Objects {
		content := o.Object
		if m.isSettings {
			content = o.DeepCopy().Object
			removeImages(content)
		}
		text, err := json.Marshal(content)
		if err != nil {
			continue // what was decoded can be encoded
		}
		contents[fmt.Sprint(i)] = string(text)
	}
	return digest(contents)
}

// removeImages removes the images of the containers of a workload.
func removeImages(object map[string]any) {
	for _, field := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(object, "spec", "template", "spec", field)
		for _, c := range containers {
			if fields, isObject := c.(map[string]any); isObject {
				delete(fields, "image")
			}
		}
		if len(containers) > 0 {
			_ = unstructured.SetNestedSlice(object, containers, "spec", "template", "spec", field)
		}
	}
}

// ChangedTalosManifests returns the manifests that have to be applied, in the order of their names. applied has the
// digests of the manifests that the workload cluster has:
//
//	the same                          no
//	another content                   yes
//	of a user, to be applied again    yes
//	not known, of a user              yes: its objects may be of an earlier content
//	not known, rendered of settings   no: Talos has created them, and a user may have changed them since
func ChangedTalosManifests(applied map[string]string, present []TalosManifest, again bool) []TalosManifest {
	var changed []TalosManifest
	for _, m := range present {
		digest, known := applied[m.Name]
		if again && !m.isSettings || digest != m.Digest && (known || !m.isSettings) {
			changed = append(changed, m)
		}
	}
	slices.SortFunc(changed, func(a, b TalosManifest) int { return strings.Compare(a.Name, b.Name) })
	return changed
}

// WithoutChanged returns what the status has of manifests, and of the images of kube-proxy and CoreDNS, with an empty value for each that differs
// from the present ones, and whether there is one. An empty value is that of no content, so the manifest is applied whatever its next content is.
func WithoutChanged(applied map[string]string, present []TalosManifest, images map[string]string) (kept map[string]string, isOther bool) {
	kept, now := maps.Clone(applied), map[string]string{}
	maps.Copy(now, images)
	for _, m := range present {
		now[m.Name] = m.Digest
	}
	for name, value := range now {
		if has := applied[name]; has != "" && has != value {
			kept[name], isOther = "", true
		}
	}
	return kept, isOther
}

// RecordTalosManifests returns the digests of the manifests that the workload cluster has, after all of present but
// failed are applied, and the images of kube-proxy and CoreDNS beside them. A manifest that is no longer rendered is
// forgotten: its objects stay.
func RecordTalosManifests(applied map[string]string, present []TalosManifest, failed map[string]bool, images map[string]string) map[string]string {
	record := maps.Clone(images)
	put := func(name, digest string) {
		if record == nil {
			record = map[string]string{}
		}
		record[name] = digest
	}
	for _, m := range present {
		switch digest, known := applied[m.Name]; {
		case !failed[m.Name]:
			put(m.Name, m.Digest)
		case known:
			put(m.Name, digest)
		}
	}
	return record
}

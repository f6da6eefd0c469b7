package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// Documents returns the documents of a stream of YAML that are not empty.
func Documents(stream string) []string {
	return slices.DeleteFunc(strings.Split("\n"+stream, "\n---"), func(d string) bool { return strings.TrimSpace(d) == "" })
}

// CreateMissing creates the objects of a manifest that do not exist.
func (c *Cluster) CreateMissing(manifest string) error {
	var failed []error
	for _, document := range Documents(manifest) {
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		gvk := obj.GetObjectKind().GroupVersionKind()
		at := slices.IndexFunc(kinds, func(k *kind) bool { return k.GroupVersionKind == gvk })
		if at < 0 {
			failed = append(failed, fmt.Errorf("no matches for kind %s", gvk))
			continue
		}
		if m := metaOf(obj); kinds[at].namespaced && m.GetNamespace() == "" {
			m.SetNamespace(metav1.NamespaceDefault)
		}
		if _, err := c.create(kinds[at], obj); err != nil && !apierrors.IsAlreadyExists(err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

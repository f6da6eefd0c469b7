package preview

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/changes"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// ErrUnreadable is returned for a manifest that cannot be parsed.
var ErrUnreadable = errors.New("the manifest cannot be read")

// maxDocuments bounds the documents of a manifest.
const maxDocuments = 50

// clusterScoped are the kinds whose objects are in no namespace.
var clusterScoped = []string{"ClusterTemplate", "MachineClass", "MachineProvider", "NetworkPool"}

// Resource returns the plural of a kind of the stack, as in the path of its objects.
func Resource(kind string) string {
	name := strings.ToLower(kind)
	if strings.HasSuffix(name, "s") {
		return name + "es"
	}
	return name + "s"
}

// Parse splits a manifest in YAML or JSON into its documents. Objects that name no namespace get the given
// one. Empty documents are left out, but count for the indexes. A manifest that cannot be parsed, or has an
// object of another kind than those of the stack, is ErrUnreadable.
func Parse(manifest []byte, namespace string) ([]Document, error) {
	documents, others, err := ParseMixed(manifest, namespace)
	if err == nil && len(others) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, otherKindError(others[0]))
	}
	return documents, err
}

// ParseMixed is Parse for a manifest that may have objects of other projects beside those of the stack. It returns them apart.
func ParseMixed(manifest []byte, namespace string) (documents, others []Document, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for index := 1; ; index++ {
		part, err := reader.Read()
		switch {
		case errors.Is(err, io.EOF) && len(documents)+len(others) == 0:
			return nil, nil, fmt.Errorf("%w: write at least one object", ErrUnreadable)
		case errors.Is(err, io.EOF) && len(documents) == 0:
			return nil, nil, fmt.Errorf("%w: %w", ErrUnreadable, otherKindError(others[0]))
		case errors.Is(err, io.EOF):
			return documents, others, nil
		case err != nil:
			return nil, nil, fmt.Errorf("%w: document %d: %w", ErrUnreadable, index, err)
		}
		objects, err := parseDocument(part)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: document %d: %w", ErrUnreadable, index, err)
		}
		if len(documents)+len(others)+len(objects) > maxDocuments {
			return nil, nil, fmt.Errorf("%w: it has more than %d objects: send fewer at once", ErrUnreadable, maxDocuments)
		}
		for _, o := range objects {
			switch {
			case slices.Contains(clusterScoped, o.GetKind()):
				o.SetNamespace("")
			case o.GetNamespace() == "":
				o.SetNamespace(namespace)
			}
			if slices.Contains(changes.Kinds, o.GetKind()) {
				documents = append(documents, Document{Index: index, Object: o})
			} else {
				others = append(others, Document{Index: index, Object: o})
			}
		}
	}
}

// parseDocument returns the object of a document, or the objects of a List, as kubectl get -o yaml writes it. An empty document has none.
func parseDocument(part []byte) ([]*unstructured.Unstructured, error) {
	document, err := yaml.YAMLToJSONStrict(part)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	if string(document) == "null" {
		return nil, nil
	}
	var list struct {
		metav1.TypeMeta
		Items []json.RawMessage
	}
	if json.Unmarshal(document, &list) != nil || list.Kind != "List" || list.APIVersion != corev1.SchemeGroupVersion.String() {
		o, err := parseObject(document)
		return []*unstructured.Unstructured{o}, err
	}
	var objects []*unstructured.Unstructured
	for n, item := range list.Items {
		o, err := parseObject(item)
		if err != nil {
			return nil, fmt.Errorf("item %d of the List: %w", n+1, err)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// parseObject returns one object in JSON.
func parseObject(document []byte) (*unstructured.Unstructured, error) {
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(document, &head); err != nil {
		return nil, errors.New("write one object")
	}
	versions := []string{v1alpha1.GroupVersion.String(), v1alpha2.GroupVersion.String()}
	switch {
	case head.Kind == "":
		return nil, fmt.Errorf("the object has no kind: write one of %s", strings.Join(changes.Kinds, ", "))
	case !slices.Contains(changes.Kinds, head.Kind) && (head.APIVersion == "" || slices.Contains(versions, head.APIVersion)):
		return nil, kindError(head.APIVersion, head.Kind)
	case slices.Contains(changes.Kinds, head.Kind) && !slices.Contains(versions, head.APIVersion):
		return nil, fmt.Errorf("the %s has the apiVersion %q: write %s, which NetworkNamespace and IPAllocation have, or %s for the other kinds", head.Kind, head.APIVersion, versions[1], versions[0])
	case head.Name == "":
		return nil, fmt.Errorf("the %s has no name: write metadata.name", head.Kind)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(document); err != nil {
		return nil, err
	}
	return o, nil
}

func otherKindError(d Document) error {
	return fmt.Errorf("document %d: %w", d.Index, kindError(d.Object.GetAPIVersion(), d.Object.GetKind()))
}

func kindError(apiVersion, kind string) error {
	return fmt.Errorf("%s is no kind of the stack: write one of %s", strings.TrimSpace(apiVersion+" "+kind), strings.Join(changes.Kinds, ", "))
}

// Merge returns the object that kubectl apply would store: fields of the manifest are set, fields that the
// last applied manifest had and this one has not are removed, and others stay. The note says if nothing
// tells which fields an earlier manifest had.
func Merge(before, manifest *unstructured.Unstructured) (after *unstructured.Unstructured, note string, err error) {
	original := []byte(before.GetAnnotations()[corev1.LastAppliedConfigAnnotation])
	if len(original) == 0 {
		note = "the object has not been created by kubectl apply: fields that the manifest leaves out are shown as they are"
	}
	current, err := specOf(before)
	if err != nil {
		return nil, "", err
	}
	wanted, err := specOf(manifest)
	if err != nil {
		return nil, "", err
	}
	applied := &unstructured.Unstructured{}
	if len(original) > 0 && json.Unmarshal(original, &applied.Object) != nil {
		applied.Object = nil
	}
	last, err := specOf(applied)
	if err != nil {
		return nil, "", err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(last, wanted, current)
	if err != nil {
		return nil, "", fmt.Errorf("compare the manifest with the object: %w", err)
	}
	merged, err := jsonpatch.MergePatch(current, patch)
	if err != nil {
		return nil, "", fmt.Errorf("compare the manifest with the object: %w", err)
	}
	after = before.DeepCopy()
	parsed := &unstructured.Unstructured{}
	if err := parsed.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"merged":%s}`, before.GetAPIVersion(), before.GetKind(), merged)); err != nil {
		return nil, "", err
	}
	spec, _, _ := unstructured.NestedFieldNoCopy(parsed.Object, "merged", "spec")
	after.Object["spec"] = spec
	return after, note, nil
}

// specOf returns the spec of an object as JSON, in an object of its own.
func specOf(o *unstructured.Unstructured) ([]byte, error) {
	return json.Marshal(map[string]any{"spec": o.Object["spec"]})
}

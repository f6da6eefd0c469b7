package addons

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// MaxSize is the number of bytes that the manifests of an add-on may have together.
const MaxSize = 2 << 20

// maxObjects is the maximum number of objects of an add-on, because each costs a request.
const maxObjects = 1000

// Manifest is an object that is applied to the workload API.
type Manifest struct {
	*unstructured.Unstructured
	// From is the file and the line at which the object begins.
	From string
}

// String names the object, and where it is written.
func (m Manifest) String() string {
	name := m.GetName()
	if m.GetNamespace() != "" {
		name = m.GetNamespace() + "/" + name
	}
	return fmt.Sprintf("%s %s (%s)", m.GetKind(), name, m.From)
}

// Manifests are the objects of an add-on, in the order in which they are applied.
type Manifests struct {
	// Digest identifies the content of all files.
	Digest  string
	Objects []Manifest
	// Kinds are those whose CustomResourceDefinitions are among the objects.
	Kinds []schema.GroupKind
}

// Read returns the objects of an add-on's files, in the alphabetical order of the files: Namespaces first, then
// CustomResourceDefinitions, and last what the API server calls for the requests of others. It returns a
// usererror.Error that names the file and the line of what is wrong.
func Read(a v1alpha1.ClusterAddon, files map[string]string) (Manifests, error) {
	all := Manifests{Digest: digest(files)}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		objects, err := readFile(file, files[file])
		if err != nil {
			return Manifests{}, Problem(a.Name, ReasonInvalid, fmt.Sprintf("%s, %s", Source(a), err))
		}
		all.Objects = append(all.Objects, objects...)
	}
	switch {
	case len(all.Objects) == 0:
		return Manifests{}, Problem(a.Name, ReasonInvalid, Source(a)+" has no object: write manifests into it, or remove the add-on from spec.addons")
	case len(all.Objects) > maxObjects:
		return Manifests{}, Problem(a.Name, ReasonInvalid, fmt.Sprintf("%s has more than %d objects: split it into several add-ons", Source(a), maxObjects))
	}
	sortByNeed(all.Objects)
	all.Kinds = definedKinds(all.Objects)
	return all, nil
}

// sortByNeed brings objects into the order in which they are applied.
func sortByNeed(objects []Manifest) {
	slices.SortStableFunc(objects, func(x, y Manifest) int { return cmp.Compare(rank(x), rank(y)) })
}

// definedKinds returns the kinds whose CustomResourceDefinitions are among objects.
func definedKinds(objects []Manifest) []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, o := range objects {
		if o.GetKind() == kindDefinition {
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			name, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
			kinds = append(kinds, schema.GroupKind{Group: group, Kind: name})
		}
	}
	return kinds
}

const kindDefinition = "CustomResourceDefinition"

// rank orders objects by what others need. Webhooks and APIServices are last, because the API server calls them
// as soon as they exist, and their pods do not run yet.
func rank(m Manifest) int {
	switch m.GetKind() {
	case "Namespace":
		return 0
	case kindDefinition:
		return 1
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService":
		return 3
	default:
		return 2
	}
}

func digest(files map[string]string) string {
	sum := sha256.New()
	for _, file := range slices.Sorted(maps.Keys(files)) {
		_, _ = fmt.Fprintf(sum, "%d %s%d %s", len(file), file, len(files[file]), files[file])
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// readFile returns the objects of a file of YAML documents.
func readFile(file, text string) ([]Manifest, error) {
	var all []Manifest
	for _, d := range split(text) {
		from := fmt.Sprintf("%s line %d", file, d.line)
		content, err := yaml.YAMLToJSON([]byte(d.text))
		if err != nil {
			return nil, fmt.Errorf("%s", d.errorIn(file, err))
		}
		if bytes.Equal(content, []byte("null")) {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(content, &o.Object); err != nil {
			return nil, fmt.Errorf("%s: this is no object: write apiVersion, kind and metadata", from)
		}
		objects, err := flatten(o, from)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// flatten returns an object, or the objects of a list.
func flatten(o *unstructured.Unstructured, from string) ([]Manifest, error) {
	items, isList := o.Object["items"].([]any)
	if !isList || !strings.HasSuffix(o.GetKind(), "List") {
		return check(o, from)
	}
	var all []Manifest
	for i, item := range items {
		fields, isObject := item.(map[string]any)
		if !isObject {
			return nil, fmt.Errorf("%s, item %d: this is no object: write apiVersion, kind and metadata", from, i+1)
		}
		objects, err := check(&unstructured.Unstructured{Object: fields}, fmt.Sprintf("%s, item %d", from, i+1))
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// check returns the object without what the API server refuses of a server-side apply, or an error that says which
// field is missing.
func check(o *unstructured.Unstructured, from string) ([]Manifest, error) {
	name, _, err := unstructured.NestedString(o.Object, "metadata", "name")
	apiVersion, _ := o.Object["apiVersion"].(string)
	kind, _ := o.Object["kind"].(string)
	switch {
	case apiVersion == "":
		return nil, fmt.Errorf("%s: write apiVersion, for example v1", from)
	case kind == "":
		return nil, fmt.Errorf("%s: write kind, for example ConfigMap", from)
	case err != nil:
		return nil, fmt.Errorf("%s: metadata.name of the %s is no text: put it into quotes", from, kind)
	case name == "":
		return nil, fmt.Errorf("%s: write metadata.name of the %s; generateName makes another object each time", from, kind)
	}
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return []Manifest{{Unstructured: o, From: from}}, nil
}

// document is one document of a file, and the line at which it begins.
type document struct {
	text string
	line int
}

// split returns the documents of a file of YAML.
func split(text string) []document {
	var all []document
	begin, lines := 0, strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if rest, isMarker := strings.CutPrefix(line, "---"); isMarker && (strings.TrimSpace(rest) == "" || strings.HasPrefix(rest, " ")) {
			all = append(all, document{strings.Join(lines[begin:i], ""), begin + 1})
			lines[i] = strings.Replace(line, "---", "", 1)
			begin = i
		}
	}
	return append(all, document{strings.Join(lines[begin:], ""), begin + 1})
}

// lineOf finds the line in an error of the YAML library.
var lineOf = regexp.MustCompile(`line (\d+)`)

// errorIn returns an error of the YAML library with the line of the file.
func (d document) errorIn(file string, err error) string {
	message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	found := lineOf.FindStringSubmatchIndex(message)
	if found == nil {
		return fmt.Sprintf("%s line %d: this is no YAML: %s", file, d.line, message)
	}
	line, _ := strconv.Atoi(message[found[2]:found[3]])
	message = strings.TrimPrefix(message[:found[0]]+message[found[1]:], ": ")
	return fmt.Sprintf("%s line %d: this is no YAML: %s", file, line+d.line-1, message)
}

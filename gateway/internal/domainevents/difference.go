package domainevents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/events"
)

// difference returns the differences of two JSON documents in the order of their paths. A nil document is empty. A field that only
// one document has is one difference; other fields differ by their innermost values.
func difference(from, to json.RawMessage) ([]events.Change, error) {
	before, err := tree(from)
	if err != nil {
		return nil, err
	}
	after, err := tree(to)
	if err != nil {
		return nil, err
	}
	changes := []events.Change{}
	compare("", before, after, &changes)
	return changes, nil
}

func tree(document json.RawMessage) (map[string]any, error) {
	if document == nil {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var t map[string]any
	if err := decoder.Decode(&t); err != nil {
		return nil, fmt.Errorf("decode document: %w", err)
	}
	return t, nil
}

func compare(path string, from, to any, changes *[]events.Change) {
	switch a := from.(type) {
	case map[string]any:
		if b, ok := to.(map[string]any); ok {
			compareObjects(path, a, b, changes)
			return
		}
	case []any:
		if b, ok := to.([]any); ok {
			compareLists(path, a, b, changes)
			return
		}
	default:
		if from == to && from != nil {
			return
		}
	}
	*changes = append(*changes, events.Change{Path: path, From: from, To: to})
}

func compareObjects(path string, a, b map[string]any, changes *[]events.Change) {
	names := make([]string, 0, len(a)+len(b))
	for name := range a {
		names = append(names, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		at := path + "/" + pointer.Replace(name)
		from, inA := a[name]
		to, inB := b[name]
		switch {
		case !inA:
			*changes = append(*changes, events.Change{Path: at, To: to})
		case !inB:
			*changes = append(*changes, events.Change{Path: at, From: from})
		case from == nil && to == nil:
		default:
			compare(at, from, to, changes)
		}
	}
}

func compareLists(path string, a, b []any, changes *[]events.Change) {
	for i := range max(len(a), len(b)) {
		at := path + "/" + strconv.Itoa(i)
		switch {
		case i >= len(a):
			*changes = append(*changes, events.Change{Path: at, To: b[i]})
		case i >= len(b):
			*changes = append(*changes, events.Change{Path: at, From: a[i]})
		case a[i] == nil && b[i] == nil:
		default:
			compare(at, a[i], b[i], changes)
		}
	}
}

// pointer escapes a name for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

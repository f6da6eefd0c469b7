package preview

import (
	"context"
	"strings"

	"github.com/vitistack/stack/apis/admission"
	shared "github.com/vitistack/stack/apis/preview"
)

// refusals returns what the API server would refuse of a document.
func refusals(ctx context.Context, d shared.Document) ([]shared.Finding, error) {
	judged := d.Object
	if d.After != nil {
		judged = d.After
	}
	found, err := admission.Validate(ctx, judged, d.Before)
	if err != nil {
		return nil, err
	}
	all := make([]shared.Finding, len(found))
	for i, r := range found {
		all[i] = shared.Finding{Pointer: pointer(r.Field), Detail: r.Message}
	}
	return all, nil
}

// pointer returns the path of a field as JSON pointer.
func pointer(path string) string {
	if path == "" {
		return ""
	}
	return "/" + strings.NewReplacer("].", "/", "[", "/", "]", "", ".", "/").Replace(path)
}

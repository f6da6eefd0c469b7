package ingest

import (
	"strings"
	"testing"
)

// FuzzCheck parses any body as a batch of events. Each error names a field and has a text.
func FuzzCheck(f *testing.F) {
	for _, body := range []string{
		"[]", "[{}]", `[{"specversion":"1.0","id":"1","source":"/ipam","type":"io.vitistack.network.failed","data":{}}]`,
		`[{"specversion":"1.0","id":"1","source":"%","type":"io.vitistack.network.provisioned","data_base64":"AA=="}]`, `[[[[`, `[{"time":1}]`,
	} {
		f.Add([]byte(body))
	}
	checker, err := NewChecker([]string{"io.vitistack.network.provisioned", "io.vitistack.network.failed"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := ParseBatch(body)
		if err != nil {
			return
		}
		for i, e := range all {
			for _, found := range checker.Check(e, Place(i)) {
				if !strings.HasPrefix(found.Pointer, Place(i)) || found.Detail == "" {
					t.Errorf("found %+v of %s", found, body)
				}
			}
		}
	})
}

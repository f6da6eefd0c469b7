package netbox

import (
	"strings"
	"testing"
)

// FuzzErrorText parses any error body that NetBox may send.
func FuzzErrorText(f *testing.F) {
	for _, text := range []string{`{"detail":"No."}`, `{"prefix":["Duplicate","x"],"vlan":"y"}`, `["a",{"__all__":["b"]}]`, `<html>`, `[null,{"a":{"b":["c"]}}]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if said := errorText(body); strings.Count(said, "\x00") > strings.Count(string(body), "\x00")+strings.Count(string(body), `\u0000`) {
			t.Errorf("%q complains %q", body, said)
		}
	})
}

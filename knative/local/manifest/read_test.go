package manifest

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	t.Parallel()
	object := func(name string) string { return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n" }
	cases := map[string]struct {
		reason  string
		text    string
		want    []string
		wantErr string
	}{
		"One":          {reason: "one document", text: object("a"), want: []string{"f.yaml, document 1 (ConfigMap a)"}},
		"Several":      {reason: "several documents, where an empty one is counted", text: "# a comment\n---\n" + object("a") + "---\n" + object("b"), want: []string{"f.yaml, document 2 (ConfigMap a)", "f.yaml, document 3 (ConfigMap b)"}},
		"Namespace":    {reason: "the namespace is in the name", text: "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: ns}", want: []string{"f.yaml, document 1 (Pod ns/a)"}},
		"Empty":        {reason: "an empty file has no documents", text: "\n# nothing\n"},
		"NotYAML":      {reason: "the error names the document", text: object("a") + "---\na: [", wantErr: "parse f.yaml, document 2: error converting YAML to JSON: yaml: line 1: did not find expected node content"},
		"TwiceTheSame": {reason: "a duplicate key is an error", text: object("a") + "kind: Secret\n", wantErr: "parse f.yaml, document 1: error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key \"kind\" already set in map"},
		"Incomplete":   {reason: "the error names all missing fields", text: "kind: ConfigMap", wantErr: "parse f.yaml, document 1: apiVersion, metadata.name must be set"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents, err := ReadFS(fstest.MapFS{"f.yaml": {Data: []byte(tc.text)}})
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, message); diff != "" {
				t.Fatalf("%s: error (-want +got):\n%s", tc.reason, diff)
			}
			var got []string
			for _, d := range documents {
				got = append(got, d.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

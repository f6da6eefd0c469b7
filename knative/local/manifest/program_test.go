package manifest

import (
	"testing"
	"testing/fstest"
)

// TestTimeouts reads the time limits of a Knative Service with the defaults of Knative.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	for because, tc := range map[string]struct {
		fields         string
		timeout, start int
	}{
		"neither is set": {"", 300, 0},
		"the default is no limit for a short request":          {", timeoutSeconds: 60", 60, 0},
		"the default ends a long request before its timeout":   {", timeoutSeconds: 600", 600, 300},
		"a Service whose answer follows a long task sets both": {", timeoutSeconds: 600, responseStartTimeoutSeconds: 600", 600, 600},
		"0 is no limit, and replaces the default":              {", timeoutSeconds: 600, responseStartTimeoutSeconds: 0", 600, 0},
	} {
		text := `{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: f}, spec: {template: {spec: {containers: [{image: "ko://example.com/f"}]` + tc.fields + `}}}}`
		documents, err := ReadFS(fstest.MapFS{"f.yaml": {Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := ReadProgram(documents[0].Object)
		if err != nil || p.TimeoutSeconds != tc.timeout || p.ResponseStartSeconds != tc.start {
			t.Errorf("%s: got %d, %d and %v, want %d and %d", because, p.TimeoutSeconds, p.ResponseStartSeconds, err, tc.timeout, tc.start)
		}
	}
}

package due_test

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/due"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestDecide(t *testing.T) {
	t.Parallel()
	const ready = `"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]`
	for name, tc := range map[string]struct {
		reason, kind, doc string
		want              bool
	}{
		"Ready":     {reason: "it is Ready and up to date", doc: `{"metadata":{"generation":1},"status":{` + ready + `}}`},
		"New":       {reason: "no function has observed it", doc: `{"metadata":{"generation":1}}`, want: true},
		"Changed":   {reason: "the event of the change was lost", doc: `{"metadata":{"generation":2},"status":{` + ready + `}}`, want: true},
		"Deleting":  {reason: "a finalizer waits", doc: `{"metadata":{"generation":1,"deletionTimestamp":"2026-01-02T03:04:00Z"},"status":{` + ready + `}}`, want: true},
		"Due":       {reason: "its next check is due", doc: `{"metadata":{"generation":1},"status":{"nextCheckTime":"2026-01-02T03:04:05Z",` + ready + `}}`, want: true},
		"NotDue":    {reason: "its next check is not due", doc: `{"metadata":{"generation":1},"status":{"nextCheckTime":"2026-01-02T03:04:06Z",` + ready + `}}`},
		"Waiting":   {reason: "what it waits for may exist now", doc: `{"metadata":{"generation":1},"status":{"phase":"Pending","observedGeneration":1,"conditions":[{"type":"Ready","status":"False"}]}}`, want: true},
		"Resting":   {reason: "spec.powerState is Stopped", kind: "Machine", doc: `{"metadata":{"generation":1},"status":{"phase":"Stopped","observedGeneration":1,"conditions":[{"type":"Ready","status":"False","reason":"Stopped"}]}}`},
		"Hindered":  {reason: "it is off against its spec, and what it waits for may exist now", kind: "Machine", doc: `{"metadata":{"generation":1},"status":{"phase":"Stopped","observedGeneration":1,"conditions":[{"type":"Ready","status":"False","reason":"StorageClassNotFound"}]}}`, want: true},
		"Backoff":   {reason: "it has a next check", doc: `{"metadata":{"generation":1},"status":{"nextCheckTime":"2026-01-02T03:04:06Z","observedGeneration":1,"conditions":[{"type":"Ready","status":"False"}]}}`},
		"Requested": {reason: "the annotation asks for a reconcile", doc: `{"metadata":{"generation":1,"annotations":{"vitistack.io/reconcile":"now"}},"status":{` + ready + `}}`, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
				Status   json.RawMessage   `json:"status"`
			}
			if err := json.Unmarshal([]byte(tc.doc), &o); err != nil {
				t.Fatal(err)
			}
			if o.Status == nil {
				o.Status = json.RawMessage("{}")
			}
			status, err := due.Decode(o.Status)
			if err != nil {
				t.Fatal(err)
			}
			if got := due.Decide(tc.kind, &o.Metadata, status).Due(now); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

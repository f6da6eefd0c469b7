package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/vitistack/stack/apis/v1alpha1"
)

const (
	aMachine = `{"apiVersion":"vitistack.io/v1alpha1","kind":"Machine","metadata":{"name":"m","labels":{"a":"}\",\"object\":{"}},"spec":{"template":"small"},"status":{"phase":"Running"}}`
	aStatus  = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}`
)

// serializers has client-go's serializer and the one that decodes Machines.
func serializers(t testing.TB) (general, machines runtime.NegotiatedSerializer) {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	general = serializer.NewCodecFactory(scheme).WithoutConversion()
	return general, oneKind{general, scheme, v1alpha1.GroupVersion.WithKind("Machine")}
}

// decoder decodes a watch as client-go does.
func decoder(t testing.TB, s runtime.NegotiatedSerializer, body io.Reader) *restwatch.Decoder {
	t.Helper()
	objects, events, framer, err := runtime.NewClientNegotiator(s, v1alpha1.GroupVersion).StreamDecoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	return restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(body)), events), objects)
}

// TestDecodeAsClientGoDoes decodes the same events with both serializers, and compares the results.
func TestDecodeAsClientGoDoes(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"object":           `{"type":"ADDED","object":` + aMachine + "}\n",
		"two at once":      `{"type":"ADDED","object":` + aMachine + `}{"type":"DELETED","object":` + aMachine + `}`,
		"status":           `{"type":"ERROR","object":` + aStatus + "}\n",
		"bookmark":         `{"type":"BOOKMARK","object":{"kind":"Machine","apiVersion":"vitistack.io/v1alpha1","metadata":{"resourceVersion":"7","creationTimestamp":null}}}`,
		"other order":      `{"object":` + aMachine + `,"type":"MODIFIED"}`,
		"spaces":           "{ \"type\" : \"MODIFIED\",\n \"object\" : " + aMachine + " }",
		"space at the end": `{"type":"MODIFIED","object":` + aMachine + " }",
		"escaped type":     `{"type":"\u0041DDED","object":` + aMachine + `}`,
		"unknown type":     `{"type":"MOVED","object":` + aMachine + `}`,
		"wrong fields":     `{"type":"ADDED","object":{"kind":"Machine","apiVersion":"vitistack.io/v1alpha1","metadata":[]}}`,
		"other kind":       `{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}}`,
		"unknown kind":     `{"type":"ADDED","object":{"kind":"Moon","apiVersion":"v1"}}`,
		"no object":        `{"type":"ADDED"}`,
		"no JSON":          `{"type":"ADDED","object":{`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			general, machines := serializers(t)
			want, got := decoder(t, general, strings.NewReader(body)), decoder(t, machines, strings.NewReader(body))
			for range 3 {
				wantType, wantObject, wantErr := want.Decode()
				gotType, gotObject, gotErr := got.Decode()
				if gotType != wantType || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
					t.Errorf("read %q with error %v, want %q with error %v", gotType, gotErr, wantType, wantErr)
				}
				if diff := cmp.Diff(wantObject, gotObject); diff != "" {
					t.Errorf("object (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// BenchmarkDecode decodes a change of a machine with its managed fields.
func BenchmarkDecode(b *testing.B) {
	m := &v1alpha1.Machine{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine"}}
	m.Name, m.Namespace, m.UID = "shop-control-plane-1", "team-a", "0bfa0f5e-7f04-4b1a-a3d3-6cd2b5a2b6e1"
	m.Spec.Template, m.Status.Phase = "small", v1alpha1.MachineRunning
	for _, manager := range []string{"kubectl", "create-vm", "allocate-ip"} {
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: "Apply", FieldsType: "FieldsV1", Time: new(metav1.Now()),
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{` + strings.Repeat(`"f:ipAddresses":{},`, 30) + `"f:phase":{}}}`)},
		})
	}
	for _, condition := range []string{"Ready", "StorageReady", "NetworkReady"} {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
			Type: condition, Status: "True", Reason: "Running", Message: "The machine runs and has all that it needs", LastTransitionTime: metav1.Now(),
		})
	}
	object, err := json.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	event := fmt.Appendf(nil, `{"type":"MODIFIED","object":%s}`+"\n", object)
	general, machines := serializers(b)
	for name, s := range map[string]runtime.NegotiatedSerializer{"ClientGo": general, "OneKind": machines} {
		b.Run(name, func(b *testing.B) {
			d := decoder(b, s, &endless{event: event})
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless repeats the same event.
type endless struct {
	event []byte
	left  bytes.Reader
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left.Len() == 0 {
		e.left.Reset(e.event)
	}
	return e.left.Read(p)
}

package engine

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	ktesting "k8s.io/client-go/testing"
)

// TestStatusIsRepeated has the API server restart while the status of a Trigger is written. The write is repeated until it succeeds, without another
// change of the Trigger.
func TestStatusIsRepeated(t *testing.T) {
	t.Parallel()
	trigger := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": map[string]any{"namespace": "ns", "name": "lost", "generation": int64(1)},
		"spec": map[string]any{"broker": "none", "subscriber": map[string]any{"uri": "http://there/"}},
	}}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{triggers: "TriggerList"})
	var refused atomic.Int32
	client.PrependReactor("patch", "triggers", func(ktesting.Action) (bool, runtime.Object, error) {
		if refused.Add(1) <= 3 {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	out := &lockedBuffer{}
	b, err := newBrokerSet(&cluster{dynamic: client}, newAddresses(nil), &printer{out: out}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := b.start(ctx, ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(triggers).Namespace("ns").Create(ctx, trigger, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(deadline); ; time.Sleep(10 * time.Millisecond) {
		now, err := client.Resource(triggers).Namespace("ns").Get(ctx, "lost", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions"); len(conditions) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the status is not written after %d attempts: %s", refused.Load(), out)
		}
	}
	if n := strings.Count(out.String(), "connection refused"); n != 1 {
		t.Errorf("the error is printed %d times, want once: %s", n, out)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

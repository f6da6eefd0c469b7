package orphans

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// API reads the ConfigMap orphans, and writes single fields of it.
type API interface {
	Get(ctx context.Context, namespace, name string, obj kube.Object) error
	Merge(ctx context.Context, obj kube.Object, fields map[string]any) error
}

// Check is one check for orphans at a backend that no object stands for.
type Check struct {
	// Namespace is the stack's.
	Namespace, Backend string
	Found              []v1alpha1.Orphan
	Now                time.Time
	// Message names confirmed orphans, and says how to remove them.
	Message func(confirmed []v1alpha1.Orphan) string
}

// Ref is the ConfigMap as resync names it in the event that asks for checks.
func Ref(namespace string) events.Ref {
	return events.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: v1alpha1.ConfigMapOrphans}
}

// IsRef reports whether an event asks for checks.
func IsRef(ref events.Ref) bool {
	return ref.Kind == "ConfigMap" && ref.Name == v1alpha1.ConfigMapOrphans
}

// Report writes what a check has found under the key of its backend into the ConfigMap orphans.
// It writes nothing where the ConfigMap says so already. A missing ConfigMap is an error if there
// are orphans to report, and a redelivery does not resolve it.
func Report(ctx context.Context, api API, c Check) error {
	held := &corev1.ConfigMap{}
	err := api.Get(ctx, c.Namespace, v1alpha1.ConfigMapOrphans, held)
	switch {
	case kube.NotFound(err) && len(c.Found) == 0:
		return nil
	case kube.NotFound(err):
		return events.Permanent(fmt.Errorf("report orphans: %w: apply the manifests of the stack again", err))
	case err != nil:
		return err
	}
	said := held.Data[c.Backend]
	var known v1alpha1.OrphanReport
	_ = json.Unmarshal([]byte(said), &known) // an invalid report is replaced
	report := v1alpha1.OrphanReport{Orphans: Confirm(known.Orphans, c.Found, c.Now)}
	if confirmed := Confirmed(report.Orphans); len(confirmed) > 0 {
		report.Message = kube.Text(c.Message(confirmed), 1024)
	}
	var value any // null removes the key
	text := ""
	if len(report.Orphans) > 0 {
		encoded, err := json.Marshal(report)
		if err != nil {
			return fmt.Errorf("report orphans: %w", err)
		}
		text = string(encoded)
		value = text
	}
	if text == said {
		return nil
	}
	return api.Merge(ctx, held, map[string]any{"data": map[string]any{c.Backend: value}})
}

package backendhealth

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

const (
	// checkInterval is how often a process compares an unchanged finding with the ConfigMap, which another process may have
	// changed. It bounds how late a recovery is published.
	checkInterval = 10 * time.Second
	// writeTimeout bounds the requests for one finding. It is separate from the deadline of the delivery, which a server that
	// hangs uses up.
	writeTimeout = 5 * time.Second
	maxMessage   = 1024
)

// API reads the ConfigMap backends, and writes single fields of it.
type API interface {
	Get(ctx context.Context, namespace, name string, obj kube.Object) error
	Merge(ctx context.Context, obj kube.Object, fields map[string]any) error
}

// Reporter publishes findings. It may be used by many at once. A nil Reporter publishes nothing.
type Reporter struct {
	api       API
	namespace string

	mu sync.Mutex
	// compared are the findings that this process has compared with the ConfigMap, by key. They only save requests: without
	// them every finding would be compared.
	compared map[string]Finding
	// healthy is when each server was last found healthy by this process.
	healthy map[string]time.Time
}

// New returns a Reporter that writes the ConfigMap backends in the stack's namespace.
func New(api API, namespace string) *Reporter {
	return &Reporter{api: api, namespace: namespace, compared: map[string]Finding{}, healthy: map[string]time.Time{}}
}

// Record publishes a finding about a server. instance is empty for the only server of a kind. It writes if the health or the
// reason differs from what is published, and otherwise at most once a minute. A ConfigMap that cannot be read or written is no
// error of the delivery: the log line of the delivery has it, and the next finding is compared again. Record reports whether it has
// published another health than before.
func (r *Reporter) Record(ctx context.Context, kind, instance string, f Finding) (changed bool) {
	if r == nil {
		return false
	}
	key := backend.ReportKey(kind, instance)
	if !r.begin(key, f) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	changed, err := r.publish(ctx, key, f)
	if err != nil {
		r.forget(key)
		events.Report(ctx, "", fmt.Sprintf("Cannot publish that %s is %s: %s", key, f.Health, err))
	}
	return changed
}

// begin reports whether a finding has to be compared with the ConfigMap, and notes that it is.
func (r *Reporter) begin(key string, f Finding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Health == backend.Healthy {
		r.healthy[key] = f.Ended
	} else if r.healthy[key].After(f.Began) {
		return false
	}
	last, known := r.compared[key]
	recent := known && f.Ended.Sub(last.Ended) < checkInterval
	if recent && f.Health == last.Health && f.Reason == last.Reason {
		return false
	}
	if recent && f.Health == backend.Healthy && last.Health == backend.Unhealthy && !f.Inspection {
		return false // a server that refuses one kind of request answers others
	}
	r.compared[key] = f
	return true
}

func (r *Reporter) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.compared, key)
}

// publish writes a finding, and reports whether the health was another before.
func (r *Reporter) publish(ctx context.Context, key string, f Finding) (changed bool, err error) {
	held := &corev1.ConfigMap{}
	if err := r.api.Get(ctx, r.namespace, backend.ConfigMapBackends, held); err != nil {
		return false, err
	}
	var before backend.Report
	known := json.Unmarshal([]byte(held.Data[key]), &before) == nil // an invalid report is replaced
	f.Message = kube.Text(f.Message, maxMessage)
	next, write := decide(before, known, f)
	if !write {
		return false, nil
	}
	text, err := json.Marshal(next)
	if err != nil {
		return false, fmt.Errorf("encode the report of %s: %w", key, err)
	}
	if err := r.api.Merge(ctx, held, map[string]any{"data": map[string]any{key: string(text)}}); err != nil {
		return false, err
	}
	return before.Health != next.Health, nil
}

// Forget removes the report of one server, because the installation no longer has it.
func (r *Reporter) Forget(ctx context.Context, kind, instance string) error {
	return r.remove(ctx, func(k, i string) bool { return k == kind && i == instance })
}

// Retain removes the reports of a kind's servers that are not among instances, because the installation no longer has them. It
// writes only if there are any.
func (r *Reporter) Retain(ctx context.Context, kind string, instances ...string) error {
	return r.remove(ctx, func(k, i string) bool { return k == kind && !slices.Contains(instances, i) })
}

// remove removes the reports of the servers for which isGone returns true.
func (r *Reporter) remove(ctx context.Context, isGone func(kind, instance string) bool) error {
	if r == nil {
		return nil
	}
	held := &corev1.ConfigMap{}
	if err := r.api.Get(ctx, r.namespace, backend.ConfigMapBackends, held); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	removed := map[string]any{}
	for key := range held.Data {
		if isGone(backend.ParseReportKey(key)) {
			removed[key] = nil // null removes the key
			r.forget(key)
		}
	}
	if len(removed) == 0 {
		return nil
	}
	return r.api.Merge(ctx, held, map[string]any{"data": removed})
}

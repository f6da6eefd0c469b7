package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// newObject returns an object with the fields that all kinds have. spec and status may be nil.
func newObject(kind Kind, apiVersion string, m *metav1.ObjectMeta, facts, spec, status any) (*Object, error) {
	o := &Object{
		Kind: kind, APIVersion: apiVersion,
		Key: Key{Namespace: m.Namespace, Name: m.Name},
		UID: string(m.UID), ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		Deleting: m.DeletionTimestamp != nil,
		Created:  m.CreationTimestamp.UTC(),
		Updated:  updated(m),
		Labels:   m.Labels,
		Facts:    facts,
	}
	if len(m.Annotations) > 0 {
		o.Annotations = maps.Clone(m.Annotations)
		delete(o.Annotations, lastApplied)
	}
	var err error
	if o.Spec, err = document(spec); err != nil {
		return nil, fmt.Errorf("convert %s %s/%s: %w", kind, m.Namespace, m.Name, err)
	}
	if o.Status, err = document(status); err != nil {
		return nil, fmt.Errorf("convert %s %s/%s: %w", kind, m.Namespace, m.Name, err)
	}
	if o.Reconcile, err = reconcileOf(o, m); err != nil {
		return nil, fmt.Errorf("convert %s %s/%s: %w", kind, m.Namespace, m.Name, err)
	}
	return o, nil
}

func document(v any) (json.RawMessage, error) {
	if v == nil {
		return json.RawMessage("{}"), nil
	}
	return json.Marshal(v)
}

// updated returns the latest time in an object's managed fields, or its creation.
func updated(m *metav1.ObjectMeta) time.Time {
	latest := m.CreationTimestamp.Time
	for _, f := range m.ManagedFields {
		if f.Time != nil && f.Time.After(latest) {
			latest = f.Time.Time
		}
	}
	return latest.UTC()
}

// readinessOf returns what the conditions and the annotations of an object of a kind say.
func readinessOf(kind Kind, m *metav1.ObjectMeta, conditions []metav1.Condition) Readiness {
	r := Readiness{Warnings: cause.Warnings(string(kind), m, conditions), TemplateAdvice: cause.TemplateAdvice(string(kind), m, conditions)}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil {
		r.Ready, r.Reason, r.Message, r.Since = c.Status == metav1.ConditionTrue, c.Reason, c.Message, c.LastTransitionTime.UTC()
	}
	return r
}

// owner returns the name of the owner of a kind, or nothing.
func owner(m *metav1.ObjectMeta, kind Kind) string {
	for _, o := range m.OwnerReferences {
		if o.Kind == string(kind) && strings.HasPrefix(o.APIVersion, vitistack) {
			return o.Name
		}
	}
	return ""
}

func firstTime(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

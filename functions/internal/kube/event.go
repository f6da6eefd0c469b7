package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RecordEvent records a Kubernetes Event on obj. A repeated call with the same UID, reason and message counts in the Event that
// exists and makes it the last one, as the correlator of client-go does. An Event that cannot be written is not an error,
// because the status of the object has the same information.
func (c *Client) RecordEvent(ctx context.Context, obj Object, warning bool, reason, message string) {
	kinds, _, err := c.scheme.ObjectKinds(obj)
	if err != nil {
		return
	}
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	namespace := obj.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	sum := sha256.Sum256([]byte(string(obj.GetUID()) + "\x00" + reason + "\x00" + message))
	now := metav1.NewTime(time.Now())
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: eventName(obj.GetName(), sum[:8])},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: kinds[0].GroupVersion().String(), Kind: kinds[0].Kind,
			Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		},
		Type: kind, Reason: reason, Message: Text(message, maxEvent), Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "vitistack"},
	}
	if err := c.Create(ctx, e); AlreadyExists(err) {
		c.repeatEvent(ctx, e, now)
	}
}

// repeatEvent writes into an Event that exists that it has happened again. The answer to the first patch has the count, so
// that a function needs no right to read Events. Of two concurrent calls one may not count.
func (c *Client) repeatEvent(ctx context.Context, e *corev1.Event, now metav1.Time) {
	if err := c.Merge(ctx, e, map[string]any{"lastTimestamp": now}); err == nil {
		_ = c.Merge(ctx, e, map[string]any{"count": e.Count + 1})
	}
}

// eventName stays within the 253 characters of an object's name.
func eventName(object string, sum []byte) string {
	const room = 253 - 1 - 16
	return object[:min(len(object), room)] + "." + hex.EncodeToString(sum)
}

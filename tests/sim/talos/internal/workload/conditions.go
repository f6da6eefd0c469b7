package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// NodeReady reports whether the condition Ready of a Node is True.
func NodeReady(node *corev1.Node) bool {
	c := condition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// setReady sets the condition Ready and the pressure conditions of a kubelet, which become Unknown
// together with it.
func setReady(node *corev1.Node, status corev1.ConditionStatus, reason, message string, now time.Time) {
	pressure, pressureReason, pressureMessage := corev1.ConditionFalse, "KubeletHasSufficient", "kubelet has sufficient"
	if status == corev1.ConditionUnknown {
		pressure, pressureReason, pressureMessage = status, reason, message
	}
	for _, noun := range []string{"Memory", "Disk", "PID"} {
		r, m := pressureReason, pressureMessage
		if pressure == corev1.ConditionFalse {
			r, m = r+noun, m+" "+noun
		}
		setCondition(node, corev1.NodeConditionType(noun+"Pressure"), pressure, r, m, now)
	}
	setCondition(node, corev1.NodeReady, status, reason, message, now)
}

func setCondition(node *corev1.Node, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) {
	at := metav1.NewTime(now.Truncate(time.Second))
	c := condition(node, kind)
	if c == nil {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind})
		c = &node.Status.Conditions[len(node.Status.Conditions)-1]
	}
	if c.Status != status {
		c.LastTransitionTime = at
	}
	c.Status, c.Reason, c.Message, c.LastHeartbeatTime = status, reason, message, at
}

// lifecycleTaint reports whether the node controller sets and removes a taint.
func lifecycleTaint(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady
}

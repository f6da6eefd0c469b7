// Package template decides what a ClusterTemplate does to its clusters: which fields of its spec a cluster
// gets, and in which order a rollout updates the clusters. It imports no client, clock or log, so that
// the function and the previews decide alike.
package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Content is what a cluster gets from a ClusterTemplate. A cluster has it in AnnotationTemplate, so that a
// field that leaves the manifest of the cluster gets the value of the revision that the cluster has, also
// while a newer revision rolls out.
type Content struct {
	// Name is the name of the ClusterTemplate.
	Name string `json:"name"`
	// Revision is the hash of the fields that change a cluster which exists.
	Revision string `json:"revision"`
	// Cluster has the fields.
	Cluster v1alpha1.TemplatedCluster `json:"cluster"`
}

// ContentOf returns what a new cluster gets from a ClusterTemplate.
func ContentOf(t *v1alpha1.ClusterTemplate) Content {
	return Content{Name: t.Name, Revision: Revision(t.Spec.Cluster), Cluster: *t.Spec.Cluster.DeepCopy()}
}

// ContentFor returns what a cluster gets from a ClusterTemplate. A cluster that has its endpoint keeps the fields that
// are chosen when a cluster is created, because the API server refuses a change of them.
func ContentFor(kc *v1alpha1.KubernetesCluster, t *v1alpha1.ClusterTemplate) Content {
	c := ContentOf(t)
	if kc.Status.Endpoint != "" {
		applied, _ := Applied(kc)
		c.Cluster.Networking, c.Cluster.ControlPlaneEndpoint = applied.Cluster.Networking, applied.Cluster.ControlPlaneEndpoint
	}
	return c
}

// Applied returns the content that a cluster has got last. It is false for a cluster that has none, or an
// annotation that is not valid.
func Applied(cluster metav1.Object) (Content, bool) {
	var c Content
	raw, ok := cluster.GetAnnotations()[v1alpha1.AnnotationTemplate]
	if !ok || json.Unmarshal([]byte(raw), &c) != nil || c.Name == "" || c.Revision == "" {
		return Content{}, false
	}
	return c, true
}

// annotation returns the value of AnnotationTemplate for the content.
func (c Content) annotation() (string, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("write the content of ClusterTemplate %s: %w", c.Name, err)
	}
	return string(raw), nil
}

// Revision returns a hash of the fields that change a cluster which exists: all but the networks and the
// endpoint. It does not depend on the generation, so that a change of spec.rollout starts no rollout, and
// that it is the same after a restore from a backup.
func Revision(c v1alpha1.TemplatedCluster) string {
	c.Networking, c.ControlPlaneEndpoint = nil, nil
	raw, _ := json.Marshal(c)
	sum := sha256.Sum256(raw)
	const length = 5
	return hex.EncodeToString(sum[:length])
}

// Step is what the template of a cluster requires before the cluster is reconciled.
type Step string

// Steps. Keep needs nothing, Complete writes the content that the cluster has again, Adopt writes that of
// the ClusterTemplate in templateRef, and Release makes the fields the cluster's own.
const (
	Keep     Step = "Keep"
	Complete Step = "Complete"
	Adopt    Step = "Adopt"
	Release  Step = "Release"
)

// NextStep decides what a cluster needs:
//
//	no templateRef, no content                    Keep
//	no templateRef, content                       Release, and the fields stay
//	templateRef without content or with another   Adopt at once: the change is the cluster's own
//	spec newer than the status                    Complete: a field may have left the manifest
//	otherwise                                     Keep: a new revision comes with the rollout
func NextStep(kc *v1alpha1.KubernetesCluster) Step {
	applied, ok := Applied(kc)
	_, annotated := kc.Annotations[v1alpha1.AnnotationTemplate]
	switch {
	case kc.Spec.TemplateRef == nil && !annotated:
		return Keep
	case kc.Spec.TemplateRef == nil:
		return Release
	case !ok || applied.Name != kc.Spec.TemplateRef.Name:
		return Adopt
	case kc.Status.ObservedGeneration != kc.Generation:
		return Complete
	default:
		return Keep
	}
}

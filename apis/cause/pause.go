package cause

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// WarningPaused is the type of the Warning about an object with the annotation vitistack.io/paused. No condition has this type:
// the functions that would set it leave the object as it is.
const WarningPaused = "Paused"

// pauseOf returns the Warning about an object of a kind with the annotation vitistack.io/paused, or nil. No function reads the annotation
// of a MachineProvider.
func pauseOf(kind string, m metav1.Object) *Warning {
	if !v1alpha1.IsPaused(m) || kind == kindProvider || !slices.Contains(reporting, kind) {
		return nil
	}
	w := &Warning{
		Type: WarningPaused, Reason: "PausedByAnnotation", Message: "no function changes the object",
		Owner: PlatformTeam, Remedy: PausedRemedy(Ref{kind, m.GetNamespace(), m.GetName()}),
	}
	for _, f := range m.GetManagedFields() {
		if f.Time != nil && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:`+v1alpha1.AnnotationPaused+`"`) {
			w.Since = f.Time.UTC()
		}
	}
	return w
}

// PausedRemedy returns the remedy for objects of one kind and namespace with the annotation vitistack.io/paused, whose status no function
// updates.
func PausedRemedy(r Ref, others ...Ref) string {
	objects := strings.ToLower(r.Kind) + " " + r.Name
	for _, other := range others {
		objects += " " + other.Name
	}
	if r.Namespace != "" {
		objects += " -n " + r.Namespace
	}
	return "The annotation " + v1alpha1.AnnotationPaused + " keeps functions from changing an object. Finish kubectl viti move, which sets it, or remove it: kubectl annotate " +
		objects + " " + v1alpha1.AnnotationPaused + "-"
}

package v1alpha1_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestFormerUIDs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		because, former, uid string
		had                  bool
		original             string
	}{
		{"an object that never moved has no former UID", "", "a", false, "own"},
		{"an object without a mark is of no owner", "a", "", false, "a"},
		{"it moved once", "a", "a", true, "a"},
		{"it moved twice, and its MAC addresses derive from the first UID", "a,b", "b", true, "a"},
		{"a person writes a space after the comma", "a, b", "b", true, "a"},
		{"a UID of another object", "a,b", "c", false, "a"},
		{"a part of a former UID", "ab", "a", false, "ab"},
		{"what has no mark is adopted by name", "unmarked", "unmarked", false, "own"},
		{"an object of another program that moved later", "unmarked,a", "a", true, "a"},
		{"its own UID needs no adoption", "own", "own", false, "own"},
	} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "own", Annotations: map[string]string{v1alpha1.AnnotationFormerUIDs: tc.former}}}
		if had, original := v1alpha1.HadUID(m, tc.uid), string(v1alpha1.OriginalUID(m)); had != tc.had || original != tc.original {
			t.Errorf("%s: HadUID is %t, OriginalUID %s, want %t, %s", tc.because, had, original, tc.had, tc.original)
		}
	}
}

package proxmox

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestIsAdoptable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, former, tags, description, name string
		adoptable, unmarked                     bool
	}{
		{"it has the tag of a former UID", "aaa,bbb", "vitistack;uid-bbb", "", "web", true, false},
		{"a clone has only the description at first", "aaa", "", "Machine a/web\nuid: aaa\n", "web", true, false},
		{"it is the Machine's own", "aaa", "vitistack;uid-own;former-aaa", "", "web", false, false},
		{"another Machine has adopted it", "aaa", "vitistack;uid-ccc;former-aaa", "Machine a/web\nuid: ccc\n", "web", false, false},
		{"the Machine was never created again", "", "vitistack;uid-aaa", "", "web", false, false},
		{"the proxmox-operator made it", "", "", "", "web", false, true},
		{"a tag of an administrator is no mark", "", "backup", "", "web", false, true},
		{"it has another name", "", "", "", "db", false, false},
	} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "own", Annotations: map[string]string{v1alpha1.AnnotationFormerUIDs: tc.former}}}
		vm := &virtualMachine{config: map[string]string{"tags": tc.tags, "description": tc.description, "name": tc.name}}
		if got, unmarked := isAdoptable(m, splitTags(tc.tags), tc.description), vm.isUnmarked(m); got != tc.adoptable || unmarked != tc.unmarked {
			t.Errorf("%s: got %t and unmarked %t, want %t and %t", tc.reason, got, unmarked, tc.adoptable, tc.unmarked)
		}
	}
}

package proxmox

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestHostnameOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"web": "web", "web.example.com": "web-example-com"} {
		if got := hostname(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	long := hostname(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a.", 100) + "a"}})
	if len(long) != 63 || strings.Contains(long, ".") {
		t.Errorf("a long name is shortened to a DNS label: %s", long)
	}
}

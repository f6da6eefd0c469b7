package kubevirt

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestPlanGrowth(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
	for name, tc := range map[string]struct {
		reason  string
		has     string
		phase   corev1.PersistentVolumeClaimPhase
		want    string
		grows   bool
		refused string
	}{
		"Equal":     {reason: "nothing differs", has: "10Gi", phase: corev1.ClaimBound, want: "10Gi"},
		"OtherUnit": {reason: "10240Mi are 10Gi", has: "10Gi", phase: corev1.ClaimBound, want: "10240Mi"},
		"Larger":    {reason: "Kubernetes grows a bound claim", has: "10Gi", phase: corev1.ClaimBound, want: "20Gi", grows: true},
		"Unbound":   {reason: "Kubernetes refuses to grow a claim without a volume: a later delivery does", has: "10Gi", phase: corev1.ClaimPending, want: "20Gi"},
		"Smaller":   {reason: "a smaller disk would lose data", has: "10Gi", phase: corev1.ClaimBound, want: "5Gi", refused: "DiskCannotShrink"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claimName(m, "root")}, Status: corev1.PersistentVolumeClaimStatus{Phase: tc.phase}}
			claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(tc.has)}
			disks := []hypervisor.Disk{{Name: "root", Size: resource.MustParse(tc.want)}, {Name: "new", Size: resource.MustParse("1Gi")}}
			larger, err := planGrowth(m, disks, []corev1.PersistentVolumeClaim{claim})
			user := reconcile.UserError{}
			if errors.As(err, &user); user.Reason != tc.refused || (len(larger) == 1) != tc.grows {
				t.Fatalf("%s: got %d claims to grow and error %v", tc.reason, len(larger), err)
			}
			if tc.grows && (larger[0].disk != "root" || larger[0].size.String() != tc.want) {
				t.Errorf("%s: got disk %s of %s", tc.reason, larger[0].disk, larger[0].size.String())
			}
		})
	}
}

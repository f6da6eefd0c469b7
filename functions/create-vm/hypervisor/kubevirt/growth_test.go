package kubevirt

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestPlanGrowth(t *testing.T) {
	t.Parallel()
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
			claim := func(name string, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
				c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
				c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(tc.has)}
				return c
			}
			disks := []hypervisor.Disk{{Name: "root", Size: resource.MustParse(tc.want)}, {Name: "new", Size: resource.MustParse("1Gi")}}
			for source, volume := range map[string]kubevirtv1.VolumeSource{
				"web-root": claimSource("web-root"), "image-root": dataVolumeSource("image-root"), "restore-1-root": claimSource("restore-1-root"),
			} {
				volumes := []kubevirtv1.Volume{{Name: "root", VolumeSource: volume}}
				larger, err := planGrowth(volumes, disks, []corev1.PersistentVolumeClaim{claim("web-old", corev1.ClaimBound), claim(source, tc.phase)})
				user := reconcile.UserError{}
				if errors.As(err, &user); user.Reason != tc.refused || (len(larger) == 1) != tc.grows {
					t.Fatalf("%s: got %d claims to grow and error %v", tc.reason, len(larger), err)
				}
				if tc.grows && (larger[0].disk != "root" || larger[0].claim.Name != source || larger[0].size.String() != tc.want) {
					t.Errorf("%s: got disk %s on %s of %s", tc.reason, larger[0].disk, larger[0].claim.Name, larger[0].size.String())
				}
			}
		})
	}
}

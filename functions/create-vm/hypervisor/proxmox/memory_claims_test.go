package proxmox

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestUnlistedClaims(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "own"}}
	own := memoryClaim{"own", "a", 100, 4, 50, ""}
	other := func(node string, revision uint64) memoryClaim {
		return memoryClaim{"other", node, 101, 3, revision, ""}
	}
	vm := func(change func(*inventoryItem)) inventory {
		i := inventoryItem{Type: "qemu", Node: "b", VMID: 101, Status: "stopped", TagList: tagManaged, MaxMem: 3}
		change(&i)
		return inventory{i}
	}
	for name, tc := range map[string]struct {
		reason string
		claims memoryClaims
		all    inventory
		want   map[string]int64
	}{
		"New":        {"a machine without a claim counts all claims", memoryClaims{other("a", 60)}, nil, map[string]int64{"a": 3}},
		"Own":        {"its own claim is not that of another machine", memoryClaims{own}, nil, map[string]int64{}},
		"Earlier":    {"the other machine was first on its host", memoryClaims{own, other("a", 40)}, nil, map[string]int64{"a": 3}},
		"Later":      {"it was first on its host, and the other machine yields", memoryClaims{own, other("a", 60)}, nil, map[string]int64{}},
		"Elsewhere":  {"on another host it would be later", memoryClaims{own, other("b", 60)}, nil, map[string]int64{"b": 3}},
		"Listed":     {"Proxmox VE lists the other machine", memoryClaims{other("a", 40)}, vm(func(*inventoryItem) {}), map[string]int64{}},
		"Running":    {"its tags are not written yet", memoryClaims{other("a", 40)}, vm(func(i *inventoryItem) { i.Status, i.TagList = "running", "" }), map[string]int64{}},
		"Creating":   {"the virtual machine has a lock and nothing else", memoryClaims{other("a", 40)}, vm(func(i *inventoryItem) { i.TagList, i.MaxMem = "", 1 }), map[string]int64{"a": 3}},
		"NoMemory":   {"its host has not reported its memory yet", memoryClaims{other("a", 40)}, vm(func(i *inventoryItem) { i.Status, i.MaxMem = "unknown", 0 }), map[string]int64{"a": 3}},
		"OtherGuest": {"the listed guest is another one", memoryClaims{other("a", 40)}, vm(func(i *inventoryItem) { i.VMID = 102 }), map[string]int64{"a": 3}},
	} {
		if diff := cmp.Diff(tc.want, tc.claims.unlisted(tc.all, m)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestClaimOf(t *testing.T) {
	t.Parallel()
	lease := func(annotations map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Labels: map[string]string{v1alpha1.LabelHolder: "uid"}, Annotations: annotations}}
	}
	for name, tc := range map[string]struct {
		reason      string
		annotations map[string]string
		want        memoryClaim
		ok          bool
	}{
		"Complete": {"it has a host and memory", map[string]string{annotationClaimedID: "proxmox://pve1/100", annotationClaimedMemory: "1024"}, memoryClaim{"uid", "pve1", 100, 1024, 7, ""}, true},
		"Earlier":  {"an earlier release has written it", nil, memoryClaim{holder: "uid", revision: 7}, false},
		"Invalid":  {"a user has changed it", map[string]string{annotationClaimedID: "proxmox://pve1/100", annotationClaimedMemory: "1Gi"}, memoryClaim{"uid", "pve1", 100, 0, 7, ""}, false},
	} {
		if got, ok := claimOf(lease(tc.annotations)); got != tc.want || ok != tc.ok {
			t.Errorf("%s: got %+v and %t, because %s", name, got, ok, tc.reason)
		}
	}
}

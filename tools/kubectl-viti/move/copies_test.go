package move

import (
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// TestDeletedSinceAnInterruption continues a move after objects were deleted here. The move removes their copies with what belongs to them. It keeps copies
// of another management cluster, copies of objects that still exist here, and copies that functions reconcile.
func TestDeletedSinceAnInterruption(t *testing.T) {
	t.Parallel()
	const copied = `{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: NAME, namespace: shop, uid: NAME-there, finalizers: [machine.vitistack.io/cleanup],
  annotations: {vitistack.io/former-uids: NAME-here, vitistack.io/paused: "MARK"}}}`
	machine := func(name, mark string) string {
		text := strings.NewReplacer("NAME", name, "MARK", mark).Replace(copied)
		return strings.Replace(text, `, vitistack.io/paused: ""`, "", 1)
	}
	const mark = "moving-from-https://here"
	m := moverOf(t, nil, []string{
		machine("deleted", mark), machine("others", "moving-from-https://other"), machine("users", "maintenance"), machine("active", ""),
		`{apiVersion: v1, kind: Secret, metadata: {name: deleted-cloudinit, namespace: shop, uid: s, ownerReferences: [{apiVersion: vitistack.io/v1alpha1, kind: Machine, name: deleted, uid: deleted-there}]}}`,
		`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: address, namespace: shop, uid: l, labels: {vitistack.io/holder: deleted-there}}}`,
		`{apiVersion: v1, kind: Secret, metadata: {name: unrelated, namespace: shop, uid: u}}`,
	})
	rows, err := m.Plan(t.Context())
	if err != nil || len(rows) != 3 || slices.ContainsFunc(rows, func(r Row) bool { return r.Action != "copy is removed" || !strings.Contains(r.Note, "deleted here") }) {
		t.Errorf("got %+v and %v, want the copies of the Machine and of what belongs to it", rows, err)
	}
	if err := m.Move(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, kind := range slices.Concat(layers, companions) {
		list, err := m.To.In(kind, "shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			left = append(left, o.GetName())
		}
	}
	if want := []string{"active", "others", "users", "unrelated"}; !slices.Equal(left, want) {
		t.Errorf("the target has %v, want %v", left, want)
	}
}

// TestDeletedWhilePaused continues a move while a user deletes an object here, which its function does not do, because the move has paused it.
func TestDeletedWhilePaused(t *testing.T) {
	t.Parallel()
	deleted := strings.Replace(scaledCluster, "generation: 2,", `generation: 2, deletionTimestamp: "2026-11-28T10:00:00Z", finalizers: [cluster.vitistack.io/cleanup],`, 1)
	removed := strings.Replace(scaledCluster, "generation: 2,", `generation: 2, deletionTimestamp: "2026-11-28T10:00:00Z", finalizers: [orphan],`, 1)
	for _, tc := range []struct{ because, here, there, action, note string }{
		{"a user deletes it, and no function does", deleted, oldCopy, Decision, "remove its annotation vitistack.io/paused"},
		{"a user deletes it, and nothing is at the target", deleted, "", Decision, "remove its annotation vitistack.io/paused"},
		{"the functions at the target have it already", deleted, strings.Replace(oldCopy, ", vitistack.io/paused: moving", "", 1), Moved, "delete that at the target"},
		{"an interrupted move has removed it", removed, oldCopy, Moved, ""},
	} {
		var there []string
		if tc.there != "" {
			there = append(there, tc.there)
		}
		rows, err := moverOf(t, []string{tc.here}, there).Plan(t.Context())
		if err != nil || len(rows) != 1 || rows[0].Action != tc.action || !strings.Contains(rows[0].Note, tc.note) || (tc.note == "") != (rows[0].Note == "") {
			t.Errorf("%s: got %+v and %v, want %s with %q", tc.because, rows, err, tc.action, tc.note)
		}
	}
}

const createdNetwork = `{apiVersion: vitistack.io/v1alpha2, kind: NetworkNamespace, metadata: {name: net, namespace: shop, uid: n, generation: 1},
  status: {observedGeneration: 1, conditions: [{type: Ready, status: "True", reason: Ready}]}}`

// TestCreatedDuringMove creates a network here during a move.
func TestCreatedDuringMove(t *testing.T) {
	t.Parallel()
	network := cluster.MustFindKind("NetworkNamespace")
	for because, tc := range map[string]struct {
		verb, resource string
		atTarget       bool
		want           string
		isCopied       bool
	}{
		"while the others are paused":  {"patch", "kubernetesclusters", false, "not Ready", true},
		"while the copies are created": {"create", "secrets", true, "NetworkNamespace shop/net was created here after the others were paused", false},
	} {
		m := moverOf(t, []string{strings.Replace(scaledCluster, ", annotations: {vitistack.io/paused: moving}", "", 1), rotatedKeys}, nil)
		once := sync.OnceValue(func() error {
			return m.From.Interface.(*fake.FakeDynamicClient).Tracker().Add(withGenerations(parse(t, network, createdNetwork)).Unstructured)
		})
		create := func(ktesting.Action) (bool, runtime.Object, error) { return false, nil, once() }
		side := m.From
		if tc.atTarget {
			side = m.To
		}
		side.Interface.(*fake.FakeDynamicClient).PrependReactor(tc.verb, tc.resource, create)
		if err := m.Move(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", because, err, tc.want)
		}
		there, err := m.To.In(network, "shop").Get(t.Context(), "net", metav1.GetOptions{})
		if (err == nil) != tc.isCopied {
			t.Errorf("%s: the target has %v (%v)", because, there, err)
		}
		if here := readNetwork(t, m.From, network); v1alpha1.IsPaused(here) != tc.isCopied {
			t.Errorf("%s: here it is %v", because, here.Object["metadata"])
		}
	}
}

// TestCopiesAreReadOnce continues a move, and counts how often it reads what the target has.
func TestCopiesAreReadOnce(t *testing.T) {
	t.Parallel()
	m := moverOf(t, []string{scaledCluster, rotatedKeys}, []string{oldCopy, oldKeys})
	if err := m.Move(t.Context()); err == nil || !strings.Contains(err.Error(), "not Ready") {
		t.Fatal(err)
	}
	reads := map[string]int{}
	for _, a := range m.To.Interface.(*fake.FakeDynamicClient).Actions() {
		reads[a.GetVerb()+" "+a.GetResource().Resource]++
	}
	if reads["list secrets"] != 1 || reads["get secrets"] != 0 || reads["create secrets"] != 0 || reads["list kubernetesclusters"] != 1 {
		t.Errorf("got %v, want one list of each kind", reads)
	}
}

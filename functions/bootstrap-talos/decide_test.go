package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestSeats(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		wanted  int
		present []seat
		adding  []string
		want    []string
	}{
		"New":     {"numbers count from zero", 2, nil, nil, []string{"p-0", "p-1"}},
		"Grows":   {"who is there stays", 3, []seat{{name: "p-0", number: 0}}, nil, []string{"p-0", "p-1", "p-2"}},
		"Gap":     {"the lowest free number is taken first", 3, []seat{{name: "p-1", number: 1}, {name: "p-2", number: 2}}, nil, []string{"p-1", "p-2", "p-0"}},
		"Order":   {"ten comes after two", 2, []seat{{name: "p-10", number: 10}, {name: "p-2", number: 2}}, nil, []string{"p-2", "p-10"}},
		"Shrinks": {"who goes is decided later, with the nodes known", 1, []seat{{name: "p-0"}, {name: "p-1", number: 1}}, nil, []string{"p-0", "p-1"}},
		"Leaving": {"the name of one that leaves is not free yet", 1, []seat{{name: "p-0", leaving: true}}, nil, []string{"p-1"}},
		"Named":   {"one that is to go gets a substitute", 2, []seat{{name: "p-0", named: true}, {name: "p-1", number: 1}}, nil, []string{"p-1", "p-2"}},
		"Adding":  {"somebody else has begun to add it, and saw p-0 leave", 2, []seat{{name: "p-1", number: 1}}, []string{"p-2"}, []string{"p-1", "p-2"}},
		"Added":   {"it is there by now", 2, []seat{{name: "p-1", number: 1}, {name: "p-2", number: 2}}, []string{"p-2"}, []string{"p-1", "p-2"}},
		"TooMany": {"fewer are wanted by now", 1, []seat{{name: "p-1", number: 1}}, []string{"p-2"}, []string{"p-1"}},
		"Others":  {"those of other pools are not counted", 1, nil, []string{"q-0", "p-x-0"}, []string{"p-0"}},
		"None":    {"a pool may be empty", 0, nil, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, seats("p-", tc.wanted, tc.present, tc.adding)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCurrentNodes(t *testing.T) {
	t.Parallel()
	configured := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationInstalled: "true"}}}
	c := &cluster{machines: map[string]*v1alpha1.Machine{"old": configured, "anew": {}}}
	cases := map[string]struct {
		reason, node string
		want         bool
	}{
		"Configured": {"it is the machine's", "old", true},
		"Replaced":   {"a machine without a configuration has no kubelet: this is its predecessor's", "anew", false},
		"Stray":      {"it has to be known in order to be taken away", "gone", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := len(c.current([]workloadNode{{name: tc.node, ready: true}})) == 1; got != tc.want {
				t.Errorf("known: %t, since %s", got, tc.reason)
			}
		})
	}
}

func TestSurplus(t *testing.T) {
	t.Parallel()
	old, young := time.Unix(1000, 0), time.Unix(2000, 0)
	a, b, c := seat{name: "a", number: 0, made: old}, seat{name: "b", number: 1, made: young}, seat{name: "c", number: 2, made: old}
	with := func(s seat, change func(*seat)) seat {
		change(&s)
		return s
	}
	named := func(s *seat) { s.named = true }
	ill := func(s *seat) { s.unhealthy = true }
	gone := func(s *seat) { s.leaving = true }
	cases := map[string]struct {
		reason              string
		wanted, at, settled int
		present             []seat
		want                []string
	}{
		"Enough":      {"nobody goes for nothing", 3, 1, 3, []seat{a, b, c}, nil},
		"Youngest":    {"the youngest goes first", 2, 1, 3, []seat{a, b, c}, []string{"b"}},
		"SameAge":     {"of the same age the highest number", 1, 1, 2, []seat{a, c}, []string{"c"}},
		"Unhealthy":   {"an unhealthy one goes before the youngest", 2, 1, 2, []seat{with(a, ill), b, c}, []string{"a"}},
		"Named":       {"a named one goes before an unhealthy one", 1, 1, 1, []seat{with(a, named), with(b, ill), c}, []string{"a"}},
		"NamedWaits":  {"a named one that works waits for its substitute", 2, 1, 1, []seat{with(a, named), b}, nil},
		"NamedDead":   {"a named one that is dead does not", 2, 1, 1, []seat{with(with(a, named), ill), b}, []string{"a"}},
		"OneAtOnce":   {"while one leaves no other does", 1, 1, 2, []seat{with(a, gone), b, c}, nil},
		"SeveralGo":   {"workers may go together", 1, 10, 3, []seat{a, b, c}, []string{"b", "c"}},
		"PoolRemoved": {"of a pool that is no more everybody goes", 0, 10, 2, []seat{a, b}, []string{"b", "a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, surplus(tc.wanted, tc.at, tc.settled, tc.present), cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDeparture(t *testing.T) {
	t.Parallel()
	worker := departure{known: true, node: true, ready: true, agreed: true}
	plane := worker
	plane.cordoned, plane.emptied, plane.member, plane.answers = true, true, true, true
	with := func(d departure, change func(*departure)) departure {
		change(&d)
		return d
	}
	cases := map[string]struct {
		reason string
		d      departure
		want   leaveStep
	}{
		"Cordon":        {"new pods are kept away first", worker, leaveCordon},
		"Drain":         {"then the pods move", with(worker, func(d *departure) { d.cordoned = true }), leaveDrain},
		"Delete":        {"an empty worker goes", with(worker, func(d *departure) { d.cordoned, d.emptied = true, true }), leaveDelete},
		"Goes":          {"and is waited for", with(worker, func(d *departure) { d.cordoned, d.emptied, d.deleted = true, true, true }), leaveGoes},
		"NotReady":      {"pods of a dead node cannot end", with(worker, func(d *departure) { d.ready = false }), leaveDelete},
		"NoNode":        {"what never was a node has no pods", with(worker, func(d *departure) { d.node = false }), leaveDelete},
		"Blind":         {"not knowing the pods is not having none", with(worker, func(d *departure) { d.known, d.node = false, false }), leaveBlind},
		"BlindForced":   {"unless somebody gives up on them", with(worker, func(d *departure) { d.known, d.forced = false, true }), leaveDelete},
		"Expired":       {"a drain has an end where one is set", with(worker, func(d *departure) { d.cordoned, d.expired = true, true }), leaveDelete},
		"Forced":        {"forced waits for no pod", with(worker, func(d *departure) { d.forced = true }), leaveDelete},
		"Deleted":       {"nor does a Machine that somebody deleted", with(worker, func(d *departure) { d.deleted = true }), leaveGoes},
		"Etcd":          {"a control plane leaves etcd before it goes", plane, leaveQuits},
		"Expel":         {"a dead one is taken out by another", with(plane, func(d *departure) { d.answers = false }), leaveExpel},
		"Objection":     {"the majority comes before the drain", with(plane, func(d *departure) { d.cordoned, d.objection = false, "no majority" }), leaveObject},
		"ForcedEtcd":    {"forced gives up on the member", with(plane, func(d *departure) { d.forced, d.objection = true, "no majority" }), leaveDelete},
		"DeletedMember": {"a deleted one still leaves etcd", with(plane, func(d *departure) { d.deleted = true }), leaveQuits},
		"Disagree":      {"it goes when all members know that it has left", with(plane, func(d *departure) { d.member, d.agreed = false, false }), leaveAgree},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.d.next(); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestMayLeave(t *testing.T) {
	t.Parallel()
	// view is an etcd of members a, b, ..., of which the named ones answer.
	view := func(n int, answer ...string) etcdView {
		v := etcdView{lists: map[string][]uint64{}}
		for i := range n {
			v.members = append(v.members, etcdMember{id: uint64(i + 1), name: string(rune('a' + i))})
		}
		for _, name := range answer {
			v.lists[name] = nil
		}
		return v
	}
	learning := view(2, "a")
	learning.members[1].learner = true
	cases := map[string]struct {
		reason string
		v      etcdView
		leaves string
		may    bool
	}{
		"Last":       {"the data would go with it", view(1, "a"), "a", false},
		"OneOfTwo":   {"the other one is a majority", view(2, "a", "b"), "b", true},
		"OneOfThree": {"two of two answer", view(3, "a", "b", "c"), "c", true},
		"Dead":       {"a dead one helps nobody", view(3, "a", "b"), "c", true},
		"AliveOfTwo": {"then one of two would answer", view(3, "a", "b"), "b", false},
		"NoMajority": {"etcd takes no change", view(3, "a"), "c", false},
		"OfFive":     {"three of four answer", view(5, "a", "b", "c", "d"), "d", true},
		"OfFiveTwo":  {"two of four would answer", view(5, "a", "b", "c"), "c", false},
		"DeadOfTwo":  {"one of two is no majority", view(2, "a"), "b", false},
		"Learner":    {"nobody counts on one that learns", learning, "b", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := tc.v.of(tc.leaves, "")
			if why := mayLeave(tc.v, m); (why == "") != tc.may {
				t.Errorf("%s: got %q, want leave to go: %t", tc.reason, why, tc.may)
			}
		})
	}
}

func TestEtcdView(t *testing.T) {
	t.Parallel()
	joining := etcdMember{id: 3, host: "192.0.2.3"}
	v := etcdView{members: []etcdMember{{id: 1, name: "a"}, {id: 2, name: "gone"}, joining}, lists: map[string][]uint64{"a": {1, 2, 3}}}
	if got := forsaken(v.members, func(name string) bool { return name == "a" }); len(got) != 1 || got[0].id != 2 {
		t.Errorf("a member without a name is about to join and stays: forsaken are %v", got)
	}
	if m, ok := v.of("new", "192.0.2.3"); !ok || m.id != 3 {
		t.Errorf("a member without a name is known by its address: got %v", m)
	}
	for want, wanted := range map[string][]string{"": {"a"}, "b": {"a", "b"}, "gone": {"gone"}} {
		if got := ailing(v, wanted); got != want {
			t.Errorf("of %v, %q ails, want %q", wanted, got, want)
		}
	}
	if !v.agreed() {
		t.Error("one list agrees with itself")
	}
	v.lists["b"] = []uint64{1, 3}
	if v.agreed() {
		t.Error("two lists that differ don't agree")
	}
}

func TestStrays(t *testing.T) {
	t.Parallel()
	nodes := []workloadNode{{name: "shop-pool-1"}, {name: "shop-cp-0"}, {name: "bare-metal-1"}, {name: "shop-front-door"}, {name: "shop-pool-9"}}
	got := strays("shop", nodes, func(name string) bool { return name == "shop-cp-0" })
	if diff := cmp.Diff([]string{"shop-pool-1", "shop-pool-9"}, got); diff != "" {
		t.Errorf("only nodes with the names of machines go (-want +got):\n%s", diff)
	}
}

func TestStays(t *testing.T) {
	t.Parallel()
	controller := true
	owned := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Controller: &controller}}
	}
	cases := map[string]struct {
		reason string
		pod    corev1.Pod
		want   bool
	}{
		"Plain":     {"somebody has to move it", corev1.Pod{}, false},
		"DaemonSet": {"its controller would start it here again", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("DaemonSet")}}, true},
		"Replica":   {"its controller starts it elsewhere", corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owned("ReplicaSet")}}, false},
		"Mirror":    {"the API has only its image", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}, true},
		"Ended":     {"it does nothing any more", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := stays(&tc.pod); got != tc.want {
				t.Errorf("%s: stays %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

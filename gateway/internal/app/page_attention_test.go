package app

import (
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
	"github.com/vitistack/stack/tests/stand/servers"
)

// readyFor is the condition Ready, which became what it is some time ago. An empty reason means True.
func readyFor(ago time.Duration, reason, message string) []metav1.Condition {
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Add(-ago))}
	if reason == "" {
		c.Status, c.Reason = metav1.ConditionTrue, "AsItShouldBe"
	}
	return []metav1.Condition{c}
}

func anAllocation(namespace, name, network string) *v1alpha2.IPAllocation {
	a := &v1alpha2.IPAllocation{TypeMeta: vitistack("v1alpha2", "IPAllocation"), ObjectMeta: meta(namespace, name)}
	a.Spec.NetworkNamespaceName = network
	return a
}

// attentionStand has a cluster whose virtual address waits for a full pool, two addresses with a mistake each, a machine that has
// waited for an hour, one that has just begun to wait, one that runs and needs a restart, a backup that failed, a network whose
// provider has a reason of its own, and three paused machines: two of one cluster run, and one does not.
// A cluster has a wrong version from its ClusterTemplate.
func attentionStand(t *testing.T, api *fakeapi.Server) {
	t.Helper()
	n := aNetwork("team-a", "net")
	n.Status.Conditions = readyFor(time.Hour, "", "")
	api.Put(t, "networknamespaces", n)
	c := aCluster("team-a", "shop", "Provisioning")
	c.Spec.NetworkNamespaceName = "net"
	c.Status.Conditions = readyFor(time.Minute, "WaitingForVirtualAddress", "waiting for IPAllocation shop-vip")
	api.Put(t, "kubernetesclusters", c)
	vip := anAllocation("team-a", "shop-vip", "net")
	vip.Labels = map[string]string{v1alpha1.LabelClusterName: "shop"}
	vip.Status.Phase = v1alpha2.IPAllocationError
	vip.Status.Conditions = readyFor(time.Minute, "PoolExhausted", "NetworkNamespace \"net\" has no free address")
	api.Put(t, "ipallocations", vip)
	for _, name := range []string{"one", "two"} {
		a := anAllocation("team-a", name, "net")
		a.Status.Phase = v1alpha2.IPAllocationError
		a.Status.Conditions = readyFor(time.Minute, "AddressTaken", "10.0.0.9 is held by printer")
		api.Put(t, "ipallocations", a)
	}
	slow := aMachine("team-a", "slow", "Creating")
	slow.Status.Conditions = readyFor(time.Hour, "Starting", "waiting for the virtual machine to start")
	api.Put(t, "machines", slow)
	fresh := aMachine("team-a", "fresh", "Creating")
	fresh.Status.Conditions = readyFor(time.Second, "Starting", "waiting for the virtual machine to start")
	api.Put(t, "machines", fresh)
	old := aMachine("team-a", "old", "Running")
	old.Status.Conditions = append(readyFor(time.Hour, "", ""), metav1.Condition{
		Type: v1alpha1.ConditionRestartRequired, Status: metav1.ConditionTrue, Reason: "SpecChanged", Message: "a change waits for the next restart",
		LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	})
	api.Put(t, "machines", old)
	api.Serve("etcdbackups")
	b := &v1alpha1.EtcdBackup{TypeMeta: vitistack("v1alpha1", "EtcdBackup"), ObjectMeta: meta("team-a", "nightly")}
	b.Spec.ClusterName, b.Status.Phase = "shop", v1alpha1.EtcdBackupFailed
	b.Status.Conditions = readyFor(time.Minute, "SnapshotDamaged", "the snapshot has a wrong checksum")
	api.Put(t, "etcdbackups", b)
	odd := aNetwork("team-b", "odd")
	odd.Status.Conditions = readyFor(time.Minute, "NoRouterInRack", "rack 7 has no router")
	api.Put(t, "networknamespaces", odd)
	follower := aCluster("team-b", "follower", "Pending")
	follower.Annotations = map[string]string{v1alpha1.AnnotationTemplate: `{"name": "standard", "revision": "a"}`}
	follower.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: v1alpha1.FieldManagerTemplate, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:topology":{"f:version":{}}}}`)}}
	follower.Status.Conditions = readyFor(time.Minute, "KubernetesVersionUnknown", "Kubernetes 1.99 is not known: write 1.35")
	api.Put(t, "kubernetesclusters", follower)
	leaving := aNetwork("team-c", "leaving")
	leaving.DeletionTimestamp, leaving.Finalizers = new(metav1.Now()), []string{"x/y"}
	leaving.Status.Conditions = readyFor(time.Second, "InUse", "waiting for IPAllocation kept to be deleted")
	api.Put(t, "networknamespaces", leaving)
	kept := anAllocation("team-c", "kept", "leaving")
	kept.Status.Conditions = readyFor(time.Hour, "", "")
	api.Put(t, "ipallocations", kept)
	frozen := aMachine("team-b", "frozen", "Running")
	frozen.Status.Conditions = readyFor(time.Hour, "", "")
	held := aMachine("team-b", "held", "Creating")
	held.Status.Conditions = readyFor(time.Second, "Starting", "waiting for the virtual machine to start")
	alike := aMachine("team-b", "frozen-too", "Running")
	alike.Status.Conditions = readyFor(time.Hour, "", "")
	frozen.Labels = map[string]string{v1alpha1.LabelClusterName: "iced"}
	alike.Labels = frozen.Labels
	for _, m := range []*v1alpha1.Machine{frozen, held, alike} {
		m.Annotations = map[string]string{v1alpha1.AnnotationPaused: "moving"}
		m.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kubectl-viti", Time: new(metav1.NewTime(time.Now().Add(-20 * time.Minute))),
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:vitistack.io/paused":{}}}}`),
		}}
		api.Put(t, "machines", m)
	}
}

// roles are what the page calls the role that acts.
const roles = `["requester", "network team", "platform team", "no action"]`

// TestPageAttention lists every cause by itself with the role that acts, and never says that there is nothing to do about what
// waits for a fault, or has waited for too long.
func TestPageAttention(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { attentionStand(t, api) })
	s.waitReady()
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/overview")
	b.Wait("the problems", `document.querySelectorAll(".attention > li").length >= 11`)
	rows := browser.Eval[[]string](b, `[...document.querySelectorAll(".attention > li")].map((r) => r.innerText.replaceAll(/\s+/g, " "))`)
	for _, tc := range []struct{ because, contains, role string }{
		{"the cluster waits for its virtual address, which waits for the pool", "team-a/shop-vip IPAllocation Pool exhausted", "network team"},
		{"a mistake in an address is its own problem", "team-a/one IPAllocation Address taken", "requester"},
		{"a second mistake is a second problem", "team-a/two IPAllocation Address taken", "requester"},
		{"a wait of an hour is a problem of a role", "team-a/slow Machine Starting", "platform team"},
		{"a failed backup is a problem", "team-a/nightly EtcdBackup Snapshot damaged", "platform team"},
		{"a condition other than Ready is a problem, too", "team-a/old Machine Spec changed: a change waits for the next restart", "requester"},
		{"a reason that only the provider of networks knows", "team-b/odd NetworkNamespace No router in rack", "network team"},
		{"the version of the cluster is from its ClusterTemplate", "team-b/follower KubernetesCluster Kubernetes version unknown: Kubernetes 1.99 is not known: write 1.35 Correct the field that the message names in ClusterTemplate standard", "platform team"},
		{"the address in the network is not being deleted", "team-c/leaving NetworkNamespace In use: waiting for IPAllocation kept", "requester"},
		{"a paused machine runs, and no function changes it", "2 machines of iced: frozen, frozen-too Paused by annotation: no function changes the object The annotation vitistack.io/paused", "for 20 min platform team"},
		{"one command resumes both machines", "kubectl annotate machine frozen frozen-too -n team-b vitistack.io/paused-", "for 20 min platform team"},
		{"a paused machine does not start by itself", "team-b/held Machine Starting: waiting for the virtual machine to start The annotation vitistack.io/paused", "platform team"},
	} {
		found := ""
		for _, row := range rows {
			if strings.Contains(row, tc.contains) {
				found = row
			}
		}
		if !strings.HasSuffix(found, tc.role) || strings.Contains(found, "No action") {
			t.Errorf("%s: no row %q for the %s in\n%s", tc.because, tc.contains, tc.role, strings.Join(rows, "\n"))
		}
	}
	if len(rows) != 11 {
		t.Errorf("%d problems, want 11:\n%s", len(rows), strings.Join(rows, "\n"))
	}
	if got := b.Text(".headline"); !strings.Contains(got, "9 objects stuck") {
		t.Errorf("a machine that runs and needs a restart counts as stuck: %s", got)
	}
	if got := b.Text(".attention"); !strings.Contains(got, "Blocks shop") {
		t.Errorf("nothing says that the address holds up the cluster:\n%s", got)
	}

	if got := s.get("/api/v1/clusters/uid-follower/conditions").object(t)["conditions"].([]any)[0].(map[string]any); got["owner"] != "platform team" || !strings.Contains(got["advice"].(string), "ClusterTemplate standard") {
		t.Errorf("the version of the cluster is from its ClusterTemplate: %v", got)
	}

	b.See("#/clusters/team-a/shop")
	b.Wait("the cause of the cluster", `document.querySelector(".problem.lone")?.innerText.includes("The cause is IPAllocation team-a/shop-vip: Pool exhausted")`)
	if got := b.Text(".problem.lone"); strings.Contains(got, "No action") || !strings.Contains(got, "network team") {
		t.Errorf("the cluster says %s", got)
	}
	b.See("#/machines/team-a/slow")
	b.Wait("the machine that is slow", `document.querySelector(".problem.lone")?.innerText.includes("lasts longer than expected")`)
	b.See("#/machines/team-a/fresh")
	b.Wait("the machine that is not slow", `document.querySelector(".problem.lone")?.innerText.includes("no action")`)
	b.See("#/machines")
	b.Wait("the pause in the table", `[...document.querySelectorAll("tr")].some((r) => r.innerText.includes("frozen") && r.innerText.includes("Paused by annotation"))`)
	b.See("#/machines/team-b/frozen")
	b.Wait("the machine that runs, paused", `document.querySelector("h1").innerText.includes("Running, paused") && document.querySelector(".problem.lone")?.innerText.includes("kubectl annotate machine frozen -n team-b vitistack.io/paused-")`)
	b.See("#/machines/team-b/held")
	b.Wait("the machine that does not start, paused", `document.querySelector("h1").innerText.includes("Creating, paused") && document.querySelector(".problem.lone")?.innerText.includes("kubectl annotate machine held -n team-b vitistack.io/paused-")`)
	if n := browser.Eval[int](b, `document.querySelectorAll(".problem.lone").length`); n != 1 {
		t.Errorf("the remedy of the machine is there %d times", n)
	}
	b.See("#/pipeline")
	b.Wait("the stuck machine", `[...document.querySelectorAll(".mover.act")].some((x) => x.innerText.includes("slow"))`)
	if got := browser.Eval[string](b, `[...document.querySelectorAll(".mover.wait")].map((x) => x.innerText).join()`); !strings.Contains(got, "fresh") {
		t.Errorf("the machines in progress are %q", got)
	}
	if got := browser.Eval[string](b, `import("/page/reasons.js").then(({ reasons }) => Object.values(reasons).map((r) => r[0]).filter((who) => !`+roles+`.includes(who)).join())`); got != "" {
		t.Errorf("roles with other names: %s", got)
	}
	b.Clean()
}

// TestPageDatabaseDown shows on the overview whether the database of the history works, while it is cut off and after that.
func TestPageDatabaseDown(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(servers.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	link := cutProxy(t, address.Host)
	database := address.Host
	address.Host = link.Addr().String()
	s := start(t, "--database.url="+address.String(), "--health.checkInterval=1s")
	b := browser.New(t, s.url, 1200, 800)
	b.Open("#/overview")
	row := `[...document.querySelectorAll(".health tr")].find((x) => x.textContent.startsWith("Event history"))?.querySelector("td")?.innerText`
	b.Wait("a database that works", row+` === "healthy"`)
	link.lead("")
	b.Wait("a database that is cut off", row+` === "unhealthy"`)
	b.Accessible("without the database")
	link.lead(database)
	b.Wait("a database that works again", row+` === "healthy"`)
	b.Clean()
}

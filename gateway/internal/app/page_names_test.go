package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// Names as long as Kubernetes allows, in which no browser finds a place to break.
var (
	longNamespace = strings.Repeat("n", 63)
	longCluster   = strings.Repeat("c", 63)
	longMachine   = strings.Repeat("m", 248) // its IPAllocation has 253
	stuckMachine  = strings.Repeat("k", 248)
	newMachine    = strings.Repeat("a", 253)
	longNetwork   = strings.Repeat("w", 253)
	longHost      = "h" + strings.Repeat("o", 252)
	longProvider  = strings.Repeat("p", 253)
	longTemplate  = strings.Repeat("t", 253)
	longClass     = strings.Repeat("s", 253)
	longBackup    = strings.Repeat("b", 253)
)

// longNames has one object of each kind with a name of the greatest length, and messages that name them.
func longNames(t *testing.T, api *fakeapi.Server) {
	t.Helper()
	api.Serve("virtualmachines", "virtualmachineinstances", "clustertemplates", "etcdbackups")
	s := &seed{t: t, api: api, now: time.Now()}
	s.network(longNamespace, 1, "", "")
	n := aNetwork(longNamespace, longNetwork)
	n.Spec.DatacenterIdentifier = v1alpha2.Identifier(strings.Repeat("d", 63))
	n.Status.Conditions = readyFor(time.Hour, "SourceUnavailable", "https://"+strings.Repeat("u", 200)+" does not answer")
	api.Put(t, "networknamespaces", n)
	s.cluster(longNamespace, longCluster, time.Hour, time.Minute, 1, "", "")
	s.machine(longNamespace, longCluster, longMachine, strings.Repeat("q", 63), "10.20.1.20", longHost, time.Hour, "", "")
	s.machine(longNamespace, longCluster, stuckMachine, "", "", "", time.Hour, "WaitingForAddress", "NetworkConfiguration \""+longNamespace+"/"+stuckMachine+"\" is not Ready")
	lone := aMachine(longNamespace, strings.Repeat("x", 253), "Running")
	lone.Spec.Template, lone.Status.NodeName, lone.Status.Provider, lone.Status.VMName = longClass, longHost, longProvider, strings.Repeat("x", 253)
	lone.Status.Conditions = readyFor(time.Hour, "", "")
	api.Put(t, "machines", lone)
	stray := aMachine(longNamespace, strings.Repeat("y", 253), "Pending")
	stray.Status.Conditions = readyFor(time.Hour, "NoCapacity", "no node of "+longProvider+" has 8 GiB left")
	api.Put(t, "machines", stray)

	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: s.meta("", longHost, time.Hour)}
	node.Labels = map[string]string{"kubevirt.io/schedulable": "true"}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("31"), corev1.ResourceMemory: quantity.MustParse("120Gi")}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: s.at(time.Hour)}}
	api.Put(t, "nodes", node)
	p := &v1alpha1.MachineProvider{TypeMeta: vitistack("v1alpha1", "MachineProvider"), ObjectMeta: s.meta("", longProvider, time.Hour)}
	p.Spec.Type = v1alpha1.ProviderProxmox
	p.Spec.Endpoint = &v1alpha1.ProviderEndpoint{URL: "https://" + strings.Repeat("e", 63) + ".example.com:8006"}
	p.Status.Phase, p.Status.Version = v1alpha1.ProviderReady, "9.0.3"
	p.Status.Conditions = readyFor(time.Hour, "", "")
	p.Status.Nodes = []v1alpha1.ProviderNode{{Name: longHost, Ready: true, CPU: quantity.MustParse("32"), Memory: quantity.MustParse("256Gi")}}
	api.Put(t, "machineproviders", p)

	ct := &v1alpha1.ClusterTemplate{TypeMeta: vitistack("v1alpha1", "ClusterTemplate"), ObjectMeta: meta("", longTemplate)}
	ct.Spec.Rollout = &v1alpha1.TemplateRollout{Waves: []v1alpha1.TemplateWave{{Name: strings.Repeat("v", 63), Selector: v1alpha1.WaveSelector{MatchLabels: map[string]string{strings.Repeat("l", 63): strings.Repeat("l", 63)}}}}}
	ct.Status.Overrides = []v1alpha1.TemplateOverride{{Namespace: longNamespace, Name: longCluster, Fields: []string{"topology." + strings.Repeat("f", 200)}}}
	ct.Status.Conditions = readyFor(time.Hour, "", "")
	api.Put(t, "clustertemplates", ct)
	follows := aCluster(longNamespace, strings.Repeat("z", 63), "Provisioning")
	follows.Spec.TemplateRef = &v1alpha1.ClusterTemplateReference{Name: longTemplate}
	follows.Spec.NetworkNamespaceName = longNetwork
	follows.Status.Conditions = readyFor(time.Hour, "WaitingForNetwork", "NetworkNamespace \""+longNamespace+"/"+longNetwork+"\" is not Ready")
	api.Put(t, "kubernetesclusters", follows)
	backup := &v1alpha1.EtcdBackup{TypeMeta: vitistack("v1alpha1", "EtcdBackup"), ObjectMeta: meta(longNamespace, longBackup)}
	backup.Spec.ClusterName = longCluster
	backup.Status.Conditions = readyFor(time.Hour, "BackupFailed", "https://"+strings.Repeat("u", 200)+" does not answer")
	api.Put(t, "etcdbackups", backup)
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta(longNamespace, longCluster+"-manifests")}
	cm.Labels = map[string]string{v1alpha1.LabelClusterName: longCluster, v1alpha1.LabelManagedBy: "bootstrap-talos"}
	cm.Data = map[string]string{longCluster + "-cp-0.machine.yaml": "apiVersion: vitistack.io/v1alpha1\n"}
	api.Put(t, "configmaps", cm)
}

// namedPages are the views of longNames, and a text that each has to show.
var namedPages = []struct{ name, hash, shows string }{
	{"overview", "#/overview", stuckMachine},
	{"pipeline", "#/pipeline", stuckMachine},
	{"clusters", "#/clusters", longCluster},
	{"cluster", "#/clusters/" + longNamespace + "/" + longCluster, longBackup},
	{"cluster-waiting", "#/clusters/" + longNamespace + "/" + strings.Repeat("z", 63), longNetwork},
	{"machines", "#/machines", longMachine},
	{"machine", "#/machines/" + longNamespace + "/" + longMachine, longHost},
	{"machine-stuck", "#/machines/" + longNamespace + "/" + stuckMachine, "is not Ready"},
	{"networks", "#/networks", longNetwork},
	{"network", "#/networks/" + longNamespace + "/" + longNetwork, "does not answer"},
	{"network-used", "#/networks/" + longNamespace + "/" + longNamespace + "-net", "interface configuration"},
	{"addresses", "#/addresses", longMachine},
	{"address", "#/addresses/" + longNamespace + "/" + longMachine + "-eth0", longMachine},
	{"hosts", "#/hosts", longHost},
	{"hosts-searched", "#/hosts?q=" + longHost, longHost},
	{"provider", "#/providers/" + longProvider, ".example.com:8006"},
	{"templates", "#/clustertemplates", longTemplate},
	{"template", "#/clustertemplates/" + longTemplate, strings.Repeat("z", 63)},
	{"backups", "#/backups", longBackup},
	{"backup", "#/backups/" + longNamespace + "/" + longBackup, "does not answer"},
	{"dead-letters", "#/dead-letters", longMachine},
	{"events", "#/events", newMachine},
	{"missing", "#/clusters/" + longNamespace + "/" + strings.Repeat("j", 63), "There is no cluster"},
	{"unmatched", "#/machines?q=" + longNetwork, "No machine matches"},
	{"facet", "#/machines?template=" + longClass + "&ns=" + longNamespace + "&cluster=" + longCluster + "&host=" + longHost, "of 5"},
}

// TestPageLongNames looks at every view with names of 63 and 253 letters. What does not fit is wrapped, scrolls, or has a title with its whole text.
func TestPageLongNames(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { longNames(t, api) })
	s.waitReady()
	eventually(t, "the database", func() bool { return s.get("/health/database").StatusCode == http.StatusOK })
	putLetter(t, s, longMachine, "create-vm")
	s.api.Put(t, "machines", aMachine(longNamespace, newMachine, "Pending"))
	eventually(t, "the machine", func() bool { return s.get("/api/v1/machines").Header.Get("X-Total-Count") == "5" })
	s.api.Put(t, "machines", aMachine(longNamespace, newMachine, "Running"))
	b := browser.New(t, s.url, 1440, 900)
	b.Open("#/overview")
	for _, v := range namedPages {
		b.See(v.hash)
		b.Wait(v.name, `document.querySelector("main").textContent.includes(`+browser.Quote(v.shows)+`)`)
		b.Do(`document.querySelectorAll("main details").forEach((d) => { d.open = true; })`)
		b.AwaitDrawing()
		for _, width := range []int64{320, 768, 1440} {
			b.Size(width, 900)
			if cut := browser.Eval[string](b, cutOff); cut != "" {
				t.Errorf("%s cuts something off at %d pixels:\n%s", v.name, width, cut)
			}
			b.Picture(v.name + "-" + map[int64]string{320: "phone", 768: "tablet", 1440: "laptop"}[width])
		}
	}
	b.Clean()
}

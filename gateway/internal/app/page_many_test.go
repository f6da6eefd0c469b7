package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// many has a number of clusters of one ClusterTemplate, each with a machine on a node of its own, an address and a network.
func many(t *testing.T, api *fakeapi.Server, count int) {
	t.Helper()
	api.Serve("clustertemplates")
	ct := &v1alpha1.ClusterTemplate{TypeMeta: vitistack("v1alpha1", "ClusterTemplate"), ObjectMeta: meta("", "standard")}
	ct.Status.Conditions = readyFor(time.Hour, "", "")
	api.Put(t, "clustertemplates", ct)
	p := &v1alpha1.MachineProvider{TypeMeta: vitistack("v1alpha1", "MachineProvider"), ObjectMeta: meta("", "proxmox")}
	p.Spec.Type = v1alpha1.ProviderProxmox
	p.Status.Conditions = readyFor(time.Hour, "", "")
	for i := range count {
		namespace, name := fmt.Sprintf("team-%04d", i/10), fmt.Sprintf("object-%05d", i)
		n := aNetwork(namespace, name)
		n.Status.Conditions = readyFor(time.Hour, "", "")
		api.Put(t, "networknamespaces", n)
		c := aCluster(namespace, name, "Running")
		c.Spec.NetworkNamespaceName = name
		c.Spec.TemplateRef = &v1alpha1.ClusterTemplateReference{Name: "standard"}
		c.Status.Conditions = readyFor(time.Hour, "", "")
		api.Put(t, "kubernetesclusters", c)
		m := aMachine(namespace, name, "Running")
		m.Labels = map[string]string{v1alpha1.LabelClusterName: name}
		m.Status.Provider, m.Status.NodeName = "proxmox", name
		m.Status.Conditions = readyFor(time.Hour, "", "")
		if i%2 == 1 {
			m.Status.Conditions = readyFor(time.Hour, "VMFailed", "qemu ended with an error")
		}
		api.Put(t, "machines", m)
		a := anAllocation(namespace, name, name)
		a.Status.Conditions = readyFor(time.Hour, "", "")
		api.Put(t, "ipallocations", a)
		p.Status.Nodes = append(p.Status.Nodes, v1alpha1.ProviderNode{Name: name, Ready: true})
	}
	api.Put(t, "machineproviders", p)
}

// TestPageMany looks at every list with one object and with 10,000, in windows of three widths. The document stays small enough to be drawn with
// each change.
func TestPageMany(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 10_000} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			s := startCold(t, func(api *fakeapi.Server) { many(t, api, count) })
			s.waitReady()
			b := browser.New(t, s.url, 1440, 900)
			b.Open("#/overview")
			for _, hash := range []string{"#/overview", "#/pipeline", "#/clusters", "#/clustertemplates/standard", "#/machines", "#/networks", "#/addresses", "#/hosts", "#/events", "#/providers/proxmox", "#/networks/team-0000/object-00000", "#/clusters/team-0000/object-00000"} {
				begin := time.Now()
				b.See(hash)
				elements := browser.Eval[int](b, `document.querySelectorAll("main *").length`)
				t.Logf("%s: %d elements after %s", hash, elements, time.Since(begin).Round(time.Millisecond))
				if elements > 25_000 {
					t.Errorf("%s draws %d elements", hash, elements)
				}
				for _, width := range []int64{320, 768, 1440} {
					b.Size(width, 900)
					if cut := browser.Eval[string](b, cutOff); cut != "" {
						t.Errorf("%s cuts something off at %d pixels:\n%s", hash, width, cut)
					}
				}
			}
			b.Clean()
		})
	}
}

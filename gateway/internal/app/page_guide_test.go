package app

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/tests/stand/browser"
)

// documentsOf returns the manifests that the page shows, by kind.
func documentsOf(t *testing.T, b *browser.Tab) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, text := range browser.Eval[[]string](b, `[...document.querySelectorAll(".guide pre")].map((p) => p.textContent)`) {
		for document := range strings.SplitSeq(text, "---\n") {
			var head struct {
				Kind string `json:"kind"`
			}
			if err := yaml.Unmarshal([]byte(document), &head); err != nil {
				t.Fatalf("%v:\n%s", err, document)
			}
			all[head.Kind] = document
		}
	}
	return all
}

func strictly[T any](t *testing.T, document string) T {
	t.Helper()
	var out T
	if err := yaml.UnmarshalStrict([]byte(document), &out); err != nil {
		t.Errorf("%v:\n%s", err, document)
	}
	return out
}

// TestPageFirstSteps follows the first steps of an empty installation: the manifests fit the network that the user describes, and
// each step says what is missing until a cluster exists.
func TestPageFirstSteps(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := browser.New(t, s.url, 1000, 900)
	b.Open("#/overview")
	b.Wait("the first steps", `document.querySelector(".guide")`)
	b.Accessible("first steps")
	b.Picture("first-steps")
	if got := b.Text(".guide"); !strings.Contains(got, "no node on which KubeVirt runs") || strings.Count(got, "missing") != 3 {
		t.Errorf("the first steps of an installation without KubeVirt:\n%s", got)
	}
	if _, ok := documentsOf(t, b)["NetworkNamespace"]; ok {
		t.Error("a network is proposed before the user has described it")
	}
	write := func(field, text string) {
		b.Do(`{ const f = document.getElementById("first-` + field + `"); f.value = ` + browser.Quote(text) + `; f.dispatchEvent(new Event("input")); }`)
	}
	for _, text := range []string{"10.20.30.0/33", "10.20.30.0/24x", "10.20.30.0/24.5", "1e-1.20.30.0/24"} {
		write("prefix", "10.20.30.0/24")
		b.Wait("the note is gone", `!document.querySelector(".guide .note")`)
		write("prefix", text)
		b.Wait("what is wrong with "+text, `document.querySelector(".guide .note")?.textContent === "Write an IPv4 prefix, for example 10.20.30.0/24."`)
	}
	write("prefix", "10.20.30.0/24")
	write("gateway", "10.20.31.1")
	b.Wait("what is wrong", `document.querySelector(".guide .note")?.textContent === "Write a gateway in 10.20.30.0/24."`)
	write("gateway", "10.20.30.20")
	write("vlan", "7")
	write("namespace", "shop")
	b.Wait("the network", `[...document.querySelectorAll(".guide pre")].some((p) => p.textContent.includes("namespace: shop") && p.textContent.includes("vlanId: 7"))`)
	found := documentsOf(t, b)
	n := strictly[v1alpha2.NetworkNamespace](t, found["NetworkNamespace"])
	pool := strictly[v1alpha1.NetworkPool](t, found["NetworkPool"])
	c := strictly[v1alpha1.KubernetesCluster](t, found["KubernetesCluster"])
	strictly[v1alpha1.MachineProvider](t, found["MachineProvider"])
	static := n.Spec.IPAllocation.Static
	if n.Namespace != "shop" || string(static.IPv4RangeStart) != "10.20.30.10" || string(static.IPv4RangeEnd) != "10.20.30.254" || len(static.ExcludedAddresses) != 1 || static.ExcludedAddresses[0] != "10.20.30.20" {
		t.Errorf("the network is\n%s", found["NetworkNamespace"])
	}
	if pool.Spec.AllowedNamespaces == nil || len(pool.Spec.AllowedNamespaces.List) != 1 || c.Spec.NetworkNamespaceName != n.Name || c.Namespace != "shop" {
		t.Errorf("the pool and the cluster are\n%s\n%s", found["NetworkPool"], found["KubernetesCluster"])
	}

	mine := aNetwork("shop", "lan")
	mine.Status.Conditions = readyFor(time.Second, "NotInPool", "no NetworkPool allows namespace shop")
	s.api.Put(t, "networknamespaces", mine)
	b.Wait("what the network lacks", `document.querySelector(".guide")?.innerText.includes("Not in pool: no NetworkPool allows namespace shop")`)
	mine.Status.Conditions = readyFor(time.Second, "", "")
	s.api.Put(t, "networknamespaces", mine)
	b.Wait("the step that is done", `document.querySelector(".guide")?.innerText.includes("A network for a namespace done")`)
	if c := strictly[v1alpha1.KubernetesCluster](t, documentsOf(t, b)["KubernetesCluster"]); c.Spec.NetworkNamespaceName != "lan" {
		t.Errorf("the cluster is proposed in network %s", c.Spec.NetworkNamespaceName)
	}
	s.api.Put(t, "kubernetesclusters", aCluster("shop", "first", "Provisioning"))
	b.Wait("the end of the first steps", `!document.querySelector(".guide")`)
	b.Clean()
}

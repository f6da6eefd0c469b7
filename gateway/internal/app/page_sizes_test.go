package app

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/browser"
)

// aClass returns a MachineClass.
func aClass(name string) *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "MachineClass"}, ObjectMeta: meta("", name),
		Spec: v1alpha1.MachineClassSpec{
			Resources: v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 8, Sockets: 2}, Memory: &v1alpha1.MachineMemory{Size: "64Gi"}},
			Disks:     []v1alpha1.MachineDisk{{Name: "root", Size: "100Gi"}, {Name: "data", Size: "500Gi", StorageClass: "fast-ssd"}},
		},
	}
}

// TestPageSizes lists the sizes of machines with their users, and finds a new MachineClass when a machine names it.
func TestPageSizes(t *testing.T) {
	t.Parallel()
	s := start(t)
	furnish(t, s)
	s.api.Put(t, "machineclasses", aClass("gpu-xl"))
	of := func(name, template, cluster string) {
		t.Helper()
		m := aMachine("team-c", name, "Running")
		m.Spec.Template = template
		if cluster != "" {
			m.Labels = map[string]string{v1alpha1.LabelClusterName: cluster}
		}
		s.api.Put(t, "machines", m)
	}
	of("train-0", "gpu-xl", "train")
	of("train-1", "gpu-xl", "train")
	of("solo", "gpu-xl", "")
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/hosts")
	row := func(name string) string {
		return `[...document.querySelectorAll("[aria-labelledby=sizes-title] tbody tr")].find((r) => r.querySelector("th").firstChild.textContent === ` + browser.Quote(name) + `)`
	}
	b.Wait("the MachineClass and its users", row("gpu-xl")+`?.textContent === "gpu-xl1664 GiBroot 100 GiB, data 500 GiB fast-ssd3 machines of 1 cluster"`)
	b.Wait("a size that exists without a MachineClass", row("large")+`?.querySelector("th").textContent === "large built in"`)
	b.Accessible("machine classes")
	b.Do(`document.getElementById("sizes-title").scrollIntoView()`)
	b.Picture("machine-classes")

	of("next", "gpu-xxl", "")
	b.Wait("a size that does not exist", `document.querySelector("[aria-labelledby=sizes-title] .note.wait")?.textContent.startsWith("Template gpu-xxl does not exist, and is named by 1 machine:")`)
	s.api.Put(t, "machineclasses", aClass("gpu-xxl"))
	b.Wait("a new MachineClass", row("gpu-xxl")+`?.textContent.endsWith("1 machine")`)

	b.Do(row("gpu-xl") + `.querySelector("a").click()`)
	b.Wait("the machines of a size", `document.querySelector("h1")?.textContent.startsWith("Machines") && location.hash.includes("template=gpu-xl")`)
	b.Wait("only these machines", `document.querySelector("main").textContent.includes("3 of 7")`)
	if text := b.Text("main"); !strings.Contains(text, "train-0") || !strings.Contains(text, "solo") {
		t.Errorf("the machines of gpu-xl are missing in %s", text)
	}
	b.Clean()
}

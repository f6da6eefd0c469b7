package install

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
)

// deploys installs with make deploy, and checks that every program has the image that make images
// pushes. Changes by Knative in the meantime do not interfere.
func deploys(t *testing.T, c *cluster, h *helm) {
	deploy := func() {
		t.Helper()
		command := exec.CommandContext(t.Context(), "make", "--silent", "deploy", "IMG=registry.example.com:5000/team/vitistack:v1.2.3")
		command.Dir = engine.Root()
		command.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("make deploy: %v\n%s", err, out)
		}
	}
	deploy()
	if err := c.discover(); err != nil {
		t.Fatal(err)
	}
	bind(t, c)
	deploy()
	objects, err := files("knative/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	image := regexp.MustCompile(`"image":"ko://[^"]*/([^"/]+)"`)
	programs := 0
	for _, object := range objects {
		want := image.FindStringSubmatch(text(t, object.Object))
		if want == nil {
			continue
		}
		programs++
		kind := schema.FromAPIVersionAndKind(object.GetAPIVersion(), object.GetKind())
		got := read(t, c, kind, object.GetName())
		if got == nil || !regexp.MustCompile(`"image":"registry\.example\.com:5000/team/vitistack/`+want[1]+`:v1\.2\.3"`).MatchString(text(t, got.Object)) {
			t.Errorf("%s %s does not have the pushed image of %s", object.GetKind(), object.GetName(), want[1])
		}
	}
	if programs < 8 {
		t.Errorf("only %d programs were found", programs)
	}
	if _, err := h.run(t.Context(), "uninstall", "vitistack"); err != nil {
		t.Fatal(err)
	}
}

// bind writes the Broker's address into a function's containers, as the controller of SinkBindings
// does.
func bind(t *testing.T, c *cluster) {
	t.Helper()
	object := read(t, c, schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}, "kea-reserve")
	containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	container := containers[0].(map[string]any)
	env, _, _ := unstructured.NestedSlice(container, "env")
	container["env"] = append(env, map[string]any{"name": "K_SINK", "value": "http://broker"})
	if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	client, err := c.client(object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(t.Context(), object, metav1.UpdateOptions{FieldManager: "webhook"}); err != nil {
		t.Fatal(err)
	}
}

package install

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
)

// deploys installs by make deploy, and finds every program's image under the name that
// make images pushes it as.
func deploys(t *testing.T, c *cluster, h *helm) {
	deploy := exec.CommandContext(t.Context(), "make", "--silent", "deploy", "IMG=registry.example.com:5000/team/vitistack:v1.2.3")
	deploy.Dir = engine.Root()
	deploy.Env = append(os.Environ(), "KUBECONFIG="+h.kubeconfig)
	if out, err := deploy.CombinedOutput(); err != nil {
		t.Fatalf("make deploy: %v\n%s", err, out)
	}
	if err := c.discover(); err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("%s %s does not run the image of %s that was pushed", object.GetKind(), object.GetName(), want[1])
		}
	}
	if programs < 8 {
		t.Errorf("only %d programs were found", programs)
	}
	if _, err := h.run(t.Context(), "uninstall", "vitistack"); err != nil {
		t.Fatal(err)
	}
}

package install

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
)

// lastReleaseUpgrades upgrades the chart of the last release, which has a value of the user, as docs/upgrade.md says: afterwards
// the cluster has what a new installation has, with that value.
func lastReleaseUpgrades(t *testing.T, c *cluster, h *helm) {
	last := filepath.Join(engine.LastRelease(t), "charts", "vitistack")
	if _, err := h.run(t.Context(), "install", "vitistack", last, "--set", "config.logLevel=debug"); err != nil {
		t.Fatal(err)
	}
	text, err := h.run(t.Context(), "get", "manifest", "vitistack")
	if err != nil {
		t.Fatal(err)
	}
	before, err := decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.run(t.Context(), "upgrade", "vitistack", chart(), "--reuse-values"); err != nil && !strings.Contains(err.Error(), "missing property") {
		t.Errorf("an upgrade with --reuse-values: %v, want the message that docs/upgrade.md explains, or none", err)
	}
	if _, err := h.run(t.Context(), "upgrade", "vitistack", chart(), "--reset-then-reuse-values"); err != nil {
		t.Fatal(err)
	}
	if err := c.discover(); err != nil {
		t.Fatal(err)
	}
	isInstalled(t, c)
	config := read(t, c, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "vitistack-config")
	if level, _, _ := unstructured.NestedString(config.Object, "data", "LOG_LEVEL"); level != "debug" {
		t.Errorf("after the upgrade the log level is %q, want the one that the user set: debug", level)
	}
	if _, err := h.run(t.Context(), "uninstall", "vitistack"); err != nil {
		t.Fatal(err)
	}
	for _, object := range before {
		if object.GetKind() == "CustomResourceDefinition" { // kept, because their deletion would delete the objects
			continue
		}
		got, err := c.get(t.Context(), object.GroupVersionKind(), namespace, object.GetName())
		if err != nil {
			t.Fatal(err)
		}
		if got != nil {
			t.Errorf("%s %s of the last release remains after the upgrade and the removal", object.GetKind(), object.GetName())
		}
	}
}

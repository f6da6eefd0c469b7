package results

import (
	"strings"
	"testing"
	"time"
)

// TestMarkdown checks the page of a busy machine.
func TestMarkdown(t *testing.T) {
	t.Parallel()
	p := &Page{command: "make test-node", commit: "abc", machine: "2 cores"}
	p.Table("Faults", "killed").Row("etcd", 2500*time.Millisecond)
	p.Counts("Requests", "of", "requests").Count("create-vm", 7)
	p.sections[0].load = "1000.5"
	for _, want := range []string{"`make test-node` writes this page", "> The machine was busy", "Commit `abc` on ", ", on 2 cores.\n", "## Faults\n\n| killed | seconds |\n", "| etcd | 2.5 |\n", "Load average before: ",
		"## Requests\n\n| of | requests |\n", "| create-vm | 7 |\n"} {
		if !strings.Contains(p.markdown(), want) {
			t.Errorf("%q is missing in\n%s", want, p.markdown())
		}
	}
}

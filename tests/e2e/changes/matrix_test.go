package changes

import (
	"bytes"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/changes"
	"github.com/vitistack/stack/tests/stand/engine"
)

// row is what a change of one field does.
type row struct {
	field string
	// on names the object of the stand that is changed.
	on string
	// at is the field that is changed, where that is not of the first item of each list.
	at string
	// to is the new value, as YAML. with has further fields that change together with it.
	to   string
	with map[string]string
	// Effect is what package changes says of the field and the object.
	changes.Effect
	// check returns an empty string once the backend is as the change wants it, and otherwise what it has.
	check func(w *world) string
	// proof is a test, as package and name, of a change whose effect takes a fault or more time than
	// this walk has.
	proof string
}

var update = flag.Bool("update", false, "write docs/changes.md")

// allRows returns the rows of each kind, with their effects.
func allRows() map[string][]row {
	all := map[string][]row{
		"NetworkNamespace": networkRows(), "NetworkConfiguration": configurationRows(), "IPAllocation": allocationRows(), "NetworkPool": poolRows(),
		"Machine": machineRows(), "MachineClass": classRows(), "MachineProvider": providerRows(), "KubernetesCluster": clusterRows(), "EtcdBackup": backupRows(), "ClusterTemplate": templateRows(),
	}
	for kind, rows := range all {
		for i := range rows {
			if e, known := changes.Find(kind, rows[i].field, rows[i].on); known && e.On == rows[i].on {
				rows[i].Effect = e
			}
		}
	}
	return all
}

// TestEveryFieldHasARow fails for a new field until its row says what a change of it does.
func TestEveryFieldHasARow(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, l := range readLeaves(t) {
		known[l.kind+" "+l.path] = true
		rows := allRows()[l.kind]
		if !slices.ContainsFunc(rows, func(r row) bool { return r.field == l.path }) {
			t.Errorf("%s spec.%s has no row: add what a change of it does, and how that shows", l.kind, l.path)
		}
	}
	for kind, rows := range allRows() {
		for _, e := range changes.Of(kind) {
			if !slices.ContainsFunc(rows, func(r row) bool { return r.Effect == e }) {
				t.Errorf("%s spec.%s of %s has an effect in apis/changes that no row proves: add the row, or remove the effect", kind, e.Field, e.On)
			}
		}
		for _, r := range rows {
			if !known[kind+" "+r.field] {
				t.Errorf("%s has no field spec.%s: remove its row", kind, r.field)
			}
			checkRow(t, kind, r)
		}
	}
}

// checkRow checks that a row proves its outcome.
func checkRow(t *testing.T, kind string, r row) {
	t.Helper()
	isRefusal := r.Outcome.IsRefusal()
	switch {
	case r.Text == "":
		t.Errorf("%s spec.%s of %s: apis/changes does not say what happens", kind, r.field, r.on)
	case isRefusal == (r.check != nil || r.proof != ""), r.check != nil && r.proof != "":
		t.Errorf("%s spec.%s (%s): a refusal needs no check, and any other outcome needs a check or a proof", kind, r.field, r.Outcome)
	case r.proof != "" && !hasTest(t, r.proof):
		t.Errorf("%s spec.%s: there is no test %s", kind, r.field, r.proof)
	}
}

// hasTest reports whether a package has a test: "functions/etcd-backup TestRetention".
func hasTest(t *testing.T, proof string) bool {
	t.Helper()
	folder, name, _ := strings.Cut(proof, " ")
	files, err := filepath.Glob(filepath.Join(engine.Root(), folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		return err == nil && file.Scope.Lookup(name) != nil
	})
}

const pageHead = `# What changing a field does

A change of a field of a spec has one of four outcomes:

| outcome | |
|---|---|
| applied | the change takes effect while everything keeps running |
| at restart | the change takes effect at the next start of the machine; until then a condition says so |
| refused | the API server refuses the change, and its message says what to write instead |
| initial only | the field has an effect when the object is created; the API server refuses a later change |

This page is generated from [apis/changes](../apis/changes). The tests in [tests/e2e/changes](../tests/e2e/changes) make each of these changes to an
object that is Ready and compare what the backends have afterwards. After a change of a table, run ` + "`make generate`" + `.
`

// TestPageIsCurrent compares docs/changes.md with the rows.
func TestPageIsCurrent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(engine.Root(), "docs", "changes.md")
	want := page(t)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	has, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(has, want) {
		t.Errorf("docs/changes.md is out of date (%v): run make generate", err)
	}
}

func page(t *testing.T) []byte {
	t.Helper()
	out := bytes.NewBufferString(pageHead)
	counts, kind := map[string]map[changes.Outcome]int{}, ""
	body := &bytes.Buffer{}
	for _, l := range readLeaves(t) {
		if l.kind != kind {
			kind = l.kind
			counts[kind] = map[changes.Outcome]int{}
			_, _ = fmt.Fprintf(body, "\n## %s\n\n| field of spec | of | outcome | what happens |\n|---|---|---|---|\n", kind)
		}
		for i, r := range rowsOf(l) {
			if i == 0 {
				counts[kind][r.Outcome]++
			}
			_, _ = fmt.Fprintf(body, "| `%s` | %s | %s | %s |\n", r.field, r.on, r.Outcome, r.Text)
		}
	}
	_, _ = fmt.Fprint(out, "\n## Fields by outcome\n\n| kind | applied | at restart | refused | initial only |\n|---|---|---|---|---|\n")
	for _, kind := range changes.Kinds {
		c := counts[kind]
		_, _ = fmt.Fprintf(out, "| [%s](#%s) | %d | %d | %d | %d |\n", kind, strings.ToLower(kind), c[changes.Applied], c[changes.AtRestart], c[changes.Refused], c[changes.InitialOnly])
	}
	_, _ = out.Write(body.Bytes())
	return out.Bytes()
}

func rowsOf(l leaf) (rows []row) {
	for _, r := range allRows()[l.kind] {
		if r.field == l.path {
			rows = append(rows, r)
		}
	}
	return rows
}

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

	"github.com/vitistack/stack/tests/stand/engine"
)

// outcome is what a change of a field of an object leads to. There is no other.
type outcome string

const (
	// applied changes what the field is about, while everything keeps running.
	applied outcome = "applied"
	// restart is applied at the next start of the machine, or by replacing machines. A condition says so.
	restart outcome = "at restart"
	// refused is a change that the API server refuses, with a message that says what to write.
	refused outcome = "refused"
	// initial is refused, because the field has an effect at the creation only.
	initial outcome = "initial only"
)

// row is what a change of one field does.
type row struct {
	field string
	// on names the object of the stand that is changed.
	on string
	// at is the field that is changed, where that is not of the first item of each list.
	at string
	// to is the new value, as YAML. with has further fields that change together with it.
	to      string
	with    map[string]string
	outcome outcome
	// effect says what happens and why, for docs/changes.md. For a refusal it is a part of the message.
	effect string
	// check returns an empty string once the backend is as the change wants it, and otherwise what it has.
	check func(w *world) string
	// proof is a test, as package and name, of a change whose effect takes a fault or more time than
	// this walk has.
	proof string
}

var update = flag.Bool("update", false, "write docs/changes.md")

// allRows returns the rows of each kind.
func allRows() map[string][]row {
	return map[string][]row{
		"NetworkNamespace": networkRows(), "NetworkConfiguration": configurationRows(), "IPAllocation": allocationRows(), "NetworkPool": poolRows(),
		"Machine": machineRows(), "MachineProvider": providerRows(), "KubernetesCluster": clusterRows(), "EtcdBackup": backupRows(),
	}
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
	isRefusal := r.outcome == refused || r.outcome == initial
	switch {
	case r.effect == "":
		t.Errorf("%s spec.%s: the row gives no reason", kind, r.field)
	case isRefusal == (r.check != nil || r.proof != ""), r.check != nil && r.proof != "":
		t.Errorf("%s spec.%s (%s): a refusal needs no check, and any other outcome needs a check or a proof", kind, r.field, r.outcome)
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

This page is generated from the tables of [tests/e2e/changes](../tests/e2e/changes), which make each of these changes to an object that is Ready
and compare what the backends have afterwards. After a change of a table, run ` + "`go generate ./tests/e2e/changes`" + `.
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
		t.Errorf("docs/changes.md is out of date (%v): run go generate ./tests/e2e/changes", err)
	}
}

func page(t *testing.T) []byte {
	t.Helper()
	out := bytes.NewBufferString(pageHead)
	counts, kind := map[string]map[outcome]int{}, ""
	body := &bytes.Buffer{}
	for _, l := range readLeaves(t) {
		if l.kind != kind {
			kind = l.kind
			counts[kind] = map[outcome]int{}
			_, _ = fmt.Fprintf(body, "\n## %s\n\n| field of spec | of | outcome | what happens |\n|---|---|---|---|\n", kind)
		}
		for i, r := range rowsOf(l) {
			if i == 0 {
				counts[kind][r.outcome]++
			}
			_, _ = fmt.Fprintf(body, "| `%s` | %s | %s | %s |\n", r.field, strings.ReplaceAll(r.on, "-", " "), r.outcome, r.effect)
		}
	}
	_, _ = fmt.Fprint(out, "\n## Fields by outcome\n\n| kind | applied | at restart | refused | initial only |\n|---|---|---|---|---|\n")
	for _, kind := range kinds() {
		c := counts[kind]
		_, _ = fmt.Fprintf(out, "| [%s](#%s) | %d | %d | %d | %d |\n", kind, strings.ToLower(kind), c[applied], c[restart], c[refused], c[initial])
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

func kinds() (all []string) {
	for kind := range allRows() {
		all = append(all, kind)
	}
	slices.Sort(all)
	return all
}

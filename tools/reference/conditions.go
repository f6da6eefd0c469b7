package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/cause"
)

// anyKind stands for a reason that means the same for each kind.
const anyKind = ""

// conditionsPage returns the page about the reasons of conditions. functions are the pages of the functions, which describe them.
func conditionsPage(functions map[string]string) string {
	kinds := map[string][]string{} // by reason
	for _, key := range cause.Reasons() {
		kind, reason, ofKind := strings.Cut(key, "/")
		if !ofKind {
			kind, reason = anyKind, key
		}
		kinds[reason] = append(kinds[reason], kind)
	}
	var b strings.Builder
	b.WriteString(`# Reasons of conditions

Each object says in its conditions where it stands. The condition Ready has a reason and a message: the message has the particulars of the object, and this page says
who has to act on a reason, and how. ` + "`kubectl viti why KIND/NAME`" + ` and the status page follow an object to the cause of its state, and say the same.

| who acts | |
|---|---|
| no action | the stack continues by itself; act only if it lasts |
| requester | the team that has created the object |
| network team | who operates addresses, DHCP and the provider of networks |
| platform team | who operates the stack and its hypervisors |
`)
	for _, reason := range slices.Sorted(maps.Keys(kinds)) {
		writeReason(&b, reason, kinds[reason], functions)
	}
	return b.String()
}

func writeReason(b *strings.Builder, reason string, kinds []string, functions map[string]string) {
	fmt.Fprintf(b, "\n## %s\n\n| object | who acts | what to do |\n|---|---|---|\n", reason)
	slices.Sort(kinds)
	for _, kind := range kinds {
		object := kind
		switch {
		case kind != anyKind:
		case len(kinds) > 1:
			object = "any other"
		default:
			object = "any"
		}
		advice := cause.Advise(kind, reason)
		remedy := advice.Remedy
		if waits := advice.WaitsFor(); len(waits) > 0 {
			remedy += " The cause may be at " + alternatives(waits) + "."
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", object, advice.Owner, cell(remedy))
	}
	var described []string
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if strings.Contains(functions[name], "`"+reason+"`") {
			described = append(described, fmt.Sprintf("[%s](../../functions/%s/README.md)", name, name))
		}
	}
	if len(described) > 0 {
		fmt.Fprintf(b, "\nWritten by %s.\n", strings.Join(described, ", "))
	}
}

// readFunctionPages returns the README of each function by its name.
func readFunctionPages() (map[string]string, error) {
	files, err := readFiles("functions/*/README.md")
	pages := map[string]string{}
	for path, text := range files {
		pages[filepath.Base(filepath.Dir(path))] = string(text)
	}
	return pages, err
}

// alternatives returns "a Machine or a NetworkNamespace".
func alternatives(kinds []string) string {
	named := make([]string, len(kinds))
	for i, kind := range kinds {
		named[i] = "a " + kind
		if strings.ContainsAny(kind[:1], "AEIOU") {
			named[i] = "an " + kind
		}
	}
	if len(named) == 1 {
		return named[0]
	}
	return strings.Join(named[:len(named)-1], ", ") + " or " + named[len(named)-1]
}

// cell makes a text fit into a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

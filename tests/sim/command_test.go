package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/sim/kubevirt"
)

// TestCommandGuests runs a program that records how it was called.
func TestCommandGuests(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	program := filepath.Join(folder, "guests")
	const script = `#!/bin/sh
cd "$(dirname "$0")"
echo "$1 $2 $(cat)" >> calls
[ "$2" != broken ] || { echo "no space left"; exit 1; }
`
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	g := commandGuests{program: program}
	guest := kubevirt.Guest{ID: "a-uuid", Name: "cp-0", UserData: "machine: {}", NICs: []kubevirt.NIC{{
		MAC:       "02:00:00:00:00:01",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}, Gateway: netip.MustParseAddr("10.0.0.1"),
	}}}
	for _, err := range []error{g.PowerOn(guest), g.PowerOff("a-uuid"), g.Destroy("a-uuid")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	calls, err := os.ReadFile(filepath.Join(folder, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(calls), "\n"), "\n")
	if len(lines) != 3 || lines[1] != "off a-uuid " || lines[2] != "destroy a-uuid " {
		t.Fatalf("calls are %q", lines)
	}
	for _, want := range []string{`on a-uuid {"ID":"a-uuid"`, `"Addresses":["10.0.0.2/24"]`, `"Gateway":"10.0.0.1"`, `"UserData":"machine: {}"`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%s lacks %s", lines[0], want)
		}
	}
	if err := g.PowerOff("broken"); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a failure is %v", err)
	}
}

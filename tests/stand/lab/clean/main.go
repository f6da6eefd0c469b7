// Clean removes what a killed run of a suite has left: clean SUITE DIRECTORY. The suites are talos, node and kubevirt. It must
// not be called during a run.
package main

import (
	"fmt"
	"os"

	"github.com/vitistack/stack/tests/stand/lab"
)

func main() {
	labs := map[string]func(string) lab.Lab{"talos": lab.Talos, "node": lab.Node, "kubevirt": lab.KubeVirt}
	if len(os.Args) != 3 || labs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "write clean talos DIRECTORY, clean node DIRECTORY, or clean kubevirt DIRECTORY")
		os.Exit(2)
	}
	if err := labs[os.Args[1]](os.Args[2]).Clean(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

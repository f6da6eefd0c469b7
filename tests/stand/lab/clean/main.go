// Clean removes what a killed run of a suite has left: clean talos DIRECTORY, or clean node DIRECTORY. It must not be
// called during a run.
package main

import (
	"fmt"
	"os"

	"github.com/vitistack/stack/tests/stand/lab"
)

func main() {
	labs := map[string]func(string) lab.Lab{"talos": lab.Talos, "node": lab.Node}
	if len(os.Args) != 3 || labs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "write clean talos DIRECTORY, or clean node DIRECTORY")
		os.Exit(2)
	}
	if err := labs[os.Args[1]](os.Args[2]).Clean(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

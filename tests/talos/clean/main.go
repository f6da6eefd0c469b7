// Clean removes what a killed run of the suite has left: clean DIRECTORY, of build.sh. It must not be called during a run.
package main

import (
	"fmt"
	"os"

	"github.com/vitistack/stack/tests/talos/lab"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "write clean DIRECTORY")
		os.Exit(2)
	}
	if err := lab.Clean(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

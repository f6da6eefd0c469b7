// Command site renders the documentation of this repository into static HTML with a search, which needs no server and
// no file from elsewhere.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "`folder` of the repository")
	out := flag.String("out", "", "`folder` for the site, whose content is replaced")
	flag.Parse()
	if *out == "" {
		fmt.Fprintln(os.Stderr, "give -out, the folder for the site")
		os.Exit(2)
	}
	count, err := build(*root, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	where, err := filepath.Abs(filepath.Join(*out, home))
	if err != nil {
		where = filepath.Join(*out, home)
	}
	fmt.Printf("Rendered %d pages. Open file://%s\n", count, where)
}

// Initramfs is the first process of a Talos node with Debian's kernel. It loads those modules that the kernel of Talos has
// built in, in the order of their file names in /modules, and then becomes the init of Talos.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	modules, _ := filepath.Glob("/modules/*.ko") // in lexical order
	for _, path := range modules {
		if err := load(path); err != nil {
			// A machine may lack what a module needs, for example the variables of UEFI.
			fmt.Fprintf(os.Stderr, "load %s: %v\n", path, err)
		}
	}
	err := unix.Exec("/talos-init", []string{"/init"}, os.Environ())
	fmt.Fprintf(os.Stderr, "start Talos: %v\n", err)
	os.Exit(1)
}

func load(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return unix.FinitModule(int(file.Fd()), "", 0)
}

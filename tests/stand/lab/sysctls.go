package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sysctls are the settings of the machine that a kubelet changes, also in a container. They belong to no namespace.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// sysctlRoot is the folder of all sysctls.
var sysctlRoot = "/proc/sys"

func sysctlFile(folder string) string { return filepath.Join(folder, "sysctls") }

// saveSysctls writes the settings of the machine into a file.
func saveSysctls(path string) error {
	var saved strings.Builder
	for _, name := range sysctls {
		value, err := os.ReadFile(filepath.Join(sysctlRoot, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&saved, "%s %s\n", name, strings.TrimSpace(string(value)))
	}
	return os.WriteFile(path, []byte(saved.String()), 0o600)
}

// restoreSysctls sets what saveSysctls has saved, and deletes the file. Without a file it does nothing.
func restoreSysctls(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		errs = append(errs, os.WriteFile(filepath.Join(sysctlRoot, name), []byte(value), 0o600))
	}
	return errors.Join(append(errs, os.Remove(path))...)
}

// Package cgroup creates and removes cgroups of nodes, with both versions of cgroups.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Root is the folder at which the hierarchies of cgroups are mounted.
const Root = "/sys/fs/cgroup"

// Hierarchy is a mounted hierarchy of cgroups. The only one of version 2 has no name.
type Hierarchy struct{ Name string }

// Path returns the folder of the hierarchy.
func (h Hierarchy) Path() string { return filepath.Join(Root, h.Name) }

// parse parses /proc/self/cgroup (cgroups(7)). Of a machine with both versions it returns those of version 1,
// which have the controllers.
func parse(text string) (found []Hierarchy) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[1] != "" && !strings.HasPrefix(fields[1], "name=") {
			found = append(found, Hierarchy{fields[1]})
		}
	}
	if len(found) == 0 {
		return []Hierarchy{{}}
	}
	slices.SortFunc(found, func(a, b Hierarchy) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Hierarchies returns the hierarchies of the machine that have controllers. There is at least one.
func Hierarchies() ([]Hierarchy, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	return parse(string(text)), err
}

// Create creates a cgroup in the root of each hierarchy. An existing one is no error.
func Create(name string) error {
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		folder := filepath.Join(h.Path(), name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("create a cgroup: %w", err)
		}
		switch {
		case h.Name == "":
			err = delegateControllers()
		case slices.Contains(strings.Split(h.Name, ","), "cpuset"):
			err = initCpuset(folder)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// delegateControllers makes all controllers of cgroup v2 available below the root.
func delegateControllers() error {
	text, err := os.ReadFile(filepath.Join(Root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(text)) {
		// The kernel refuses a controller that it uses otherwise. Then the kubelet names it.
		_ = os.WriteFile(filepath.Join(Root, "cgroup.subtree_control"), []byte("+"+controller), 0o600)
	}
	return nil
}

// initCpuset gives a cgroup all processors and memory of the machine. A new cpuset of version 1 has none, and accepts
// no process.
func initCpuset(folder string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// SetWeight gives a cgroup a multiple of the default share of the processors, which counts when they are busy.
func SetWeight(name string, multiple int) error {
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		file, unit := h.weightFile()
		if file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(h.Path(), name, file), []byte(strconv.Itoa(multiple*unit)), 0o600); err != nil {
			return fmt.Errorf("set the weight of a cgroup: %w", err)
		}
	}
	return nil
}

// weightFile returns the file with the share of the processors, and the default in it. Of a hierarchy without the
// controller cpu it returns an empty string.
func (h Hierarchy) weightFile() (file string, unit int) {
	switch {
	case h.Name == "":
		return "cpu.weight", 100
	case slices.Contains(strings.Split(h.Name, ","), "cpu"):
		return "cpu.shares", 1024
	default:
		return "", 0
	}
}

// Enter moves this process into a cgroup.
func Enter(name string) error {
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(h.Path(), name, "cgroup.procs"), []byte("0"), 0o600); err != nil {
			return fmt.Errorf("enter a cgroup: %w", err)
		}
	}
	return nil
}

// Remove removes a cgroup, with those that its programs created below. No process may be left in them. The name can have
// the wildcards of filepath.Match, for several cgroups.
func Remove(name string) error {
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range all {
		cgroups, err := filepath.Glob(filepath.Join(h.Path(), name))
		errs = append(errs, err)
		for _, cgroup := range cgroups {
			errs = append(errs, removeTree(cgroup))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup after those below it. The files in a cgroup disappear with it.
func removeTree(cgroup string) error {
	var folders []string
	err := filepath.WalkDir(cgroup, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	errs := []error{err}
	for _, folder := range slices.Backward(folders) {
		errs = append(errs, syscall.Rmdir(folder))
	}
	return errors.Join(errs...)
}

// Package kea runs real Kea DHCP servers for tests: on the loopback address, with ports and a folder
// of their own, and with the rights of the test only.
//
// There are two generations, which install.sh installs: Kea 2.2, which is changed by whole
// configurations, and Kea 3, which has commands for reservations and subnets.
package kea

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Generation is a generation of Kea.
type Generation int

// The generations, by how reservations are written.
const (
	Kea2 Generation = 2
	Kea3 Generation = 3
)

// software is a file tree with one generation of Kea.
type software struct {
	generation Generation
	root       string
	hooks      string
}

// find returns a generation that is installed on this machine, or else in the cache.
func find(g Generation) (software, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return software{}, err
	}
	for _, root := range []string{"/", filepath.Join(cache, "vitistack", fmt.Sprintf("kea%d", g))} {
		if s := (software{generation: g, root: root}); s.complete() {
			return s, nil
		}
	}
	return software{}, fmt.Errorf("find Kea %d: it is neither installed nor in the cache: run tests/stand/kea/install.sh", g)
}

// complete reports whether the tree has everything that the generation needs.
func (s *software) complete() bool {
	libraries, err := filepath.Glob(filepath.Join(s.root, "usr/lib/*/kea/hooks/libdhcp_lease_cmds.so"))
	if err != nil || len(libraries) == 0 {
		return false
	}
	s.hooks = filepath.Dir(libraries[0])
	hook := func(name string) bool { return exists(filepath.Join(s.hooks, "libdhcp_"+name+".so")) }
	if !exists(s.binary("kea-dhcp4")) {
		return false
	}
	if s.generation == Kea2 {
		return exists(s.binary("kea-ctrl-agent")) && !hook("host_cmds")
	}
	return hook("host_cmds") && hook("subnet_cmds")
}

func (s *software) binary(name string) string { return filepath.Join(s.root, "usr/sbin", name) }

// command returns how to run a binary. Those of the cache have libraries of another Debian release,
// and need their own loader.
func (s *software) command(name string, args ...string) ([]string, error) {
	if s.root == "/" {
		return append([]string{s.binary(name)}, args...), nil
	}
	var paths []string
	var loader string
	for _, dir := range []string{"usr/lib", "lib"} {
		found, err := filepath.Glob(filepath.Join(s.root, dir, "*-linux-gnu*"))
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			paths = append(paths, path, filepath.Join(path, "kea"))
			if loaders, _ := filepath.Glob(filepath.Join(path, "ld-linux*.so.*")); len(loaders) > 0 {
				loader = loaders[0]
			}
		}
	}
	if loader == "" {
		return nil, errors.New("find Kea's loader: the cache is damaged: remove it, and run tests/stand/kea/install.sh")
	}
	run := []string{loader, "--library-path", strings.Join(paths, ":"), "--argv0", name, s.binary(name)}
	return append(run, args...), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

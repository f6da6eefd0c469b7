// Package cloudinit renders network configurations with Debian's own cloud-init and netplan, which
// tests/stand/cloudinit/install.sh unpacks.
package cloudinit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Interface is an interface of the guest that reads a configuration.
type Interface struct{ Name, MAC string }

// Networkd converts a network configuration with cloud-init to netplan, and with netplan to
// systemd-networkd. It returns the file of each interface by its name. An interface that the
// configuration does not set up has none. The error contains the output of the failed program.
func Networkd(t testing.TB, config string, interfaces ...Interface) (map[string]string, error) {
	t.Helper()
	out := t.TempDir()
	if err := convert(t, config, "netplan", out, interfaces); err != nil {
		return nil, err
	}
	root := rootOf(t)
	generate := exec.CommandContext(t.Context(), filepath.Join(root, "usr/libexec/netplan/generate"), "--root-dir", out)
	generate.Env = environment(root)
	said, err := generate.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("netplan generate: %w: %s", err, said)
	}
	// Netplan 0.106 continues after an error at which newer versions end.
	if _, problem, found := strings.Cut(string(said), "Error: "); found {
		return nil, fmt.Errorf("netplan generate: %s", problem)
	}
	files := map[string]string{}
	for _, i := range interfaces {
		text, err := os.ReadFile(filepath.Join(out, "run/systemd/network", "10-netplan-"+i.Name+".network"))
		if err == nil {
			files[i.Name] = string(text)
		}
	}
	return files, nil
}

// Eni converts a network configuration with cloud-init to ifupdown, and returns the file.
func Eni(t testing.TB, config string, interfaces ...Interface) (string, error) {
	t.Helper()
	out := t.TempDir()
	if err := convert(t, config, "eni", out, interfaces); err != nil {
		return "", err
	}
	paths, err := filepath.Glob(filepath.Join(out, "etc/network/interfaces.d/*"))
	if err != nil || len(paths) != 1 {
		return "", fmt.Errorf("find what cloud-init has written: %v, %w", paths, err)
	}
	text, err := os.ReadFile(paths[0])
	return string(text), err
}

// convert runs cloud-init's own converter, which writes its result into a folder.
func convert(t testing.TB, config, renderer, out string, interfaces []Interface) error {
	t.Helper()
	root := rootOf(t)
	source := filepath.Join(t.TempDir(), "network-config")
	if err := os.WriteFile(source, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-m", "cloudinit.cmd.main", "devel", "net-convert", "-p", source, "-k", "yaml", "-d", out, "-D", "debian", "-O", renderer}
	for _, i := range interfaces {
		args = append(args, "-m", i.Name+","+i.MAC)
	}
	command := exec.CommandContext(t.Context(), "python3", args...)
	command.Env = append(environment(root), "PYTHONPATH="+filepath.Join(root, "usr/lib/python3/dist-packages"))
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("cloud-init devel net-convert: %w: %s", err, said)
	}
	return nil
}

func rootOf(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(cache, "vitistack", "cloudinit")
	if _, err := os.Stat(filepath.Join(root, "complete")); err != nil {
		t.Fatal("find cloud-init: run make prepare, or tests/stand/cloudinit/install.sh")
	}
	return root
}

func environment(root string) []string {
	libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
	return append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
}

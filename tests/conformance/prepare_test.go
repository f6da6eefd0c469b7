package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrepareFindsServers runs make prepare as a user other than root, whose PATH lacks the folders of servers: it asks for no package that is
// installed.
func TestPrepareFindsServers(t *testing.T) {
	t.Parallel()
	programs := t.TempDir()
	for name, script := range map[string]string{"id": "echo 1000", "apt-get": "exit 1", "npm": "exit 1"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "sh", "../prepare.sh")
	command.Env = []string{"PATH=" + programs + ":/usr/bin:/bin", "HOME=" + os.Getenv("HOME"), "XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME")}
	out, _ := command.CombinedOutput() // something else may be missing on this machine
	for program, debian := range map[string]string{"/usr/sbin/mariadbd": "mariadb-server", "/usr/sbin/udhcpc": "udhcpc", "/usr/lib/postgresql/*/bin/postgres": "postgresql"} {
		if found, err := filepath.Glob(program); err != nil || len(found) > 0 && strings.Contains(string(out), " "+debian) {
			t.Errorf("%v is installed, and %s is asked for: %s, %v", found, debian, out, err)
		}
	}
}

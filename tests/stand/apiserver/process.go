package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/vitistack/stack/tests/stand/process"
)

const folderPrefix = "viti-apiserver-"

// gcPercent trades memory for CPU in the servers and in the tests that use them: with Go's default, a fifth of their CPU is spent on garbage
// collection. The environment variable GOGC overrides it.
const gcPercent = 400

// spawn starts a child in a folder, with one file in addition to its standard ones.
func spawn(binary, dir string, extra *os.File, args ...string) (*process.Process, error) {
	command := exec.Command(binary, args...)
	command.Dir, command.ExtraFiles = dir, []*os.File{extra}
	// A request's goroutine starts with the stack that earlier ones needed, instead of growing its own.
	command.Env = append([]string{"GOGC=" + strconv.Itoa(gcPercent), "GODEBUG=adaptivestackstart=1"}, os.Environ()...)
	return process.Start(command, filepath.Join(dir, args[0]+".log"))
}

// removeAbandoned removes the folders of test binaries that were killed before their cleanup.
func removeAbandoned() error {
	folders, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), folderPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err != nil || syscall.Kill(pid, 0) != syscall.ESRCH {
			continue
		}
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return nil
}

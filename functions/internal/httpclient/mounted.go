package httpclient

import (
	"os"
	"path/filepath"
	"strings"
)

// MountVariable names the directory in which a function's Secrets are mounted.
const MountVariable = "CREDENTIALS_DIR"

// Mounted returns getenv with the files of the directory that CREDENTIALS_DIR names before
// it: a file KEA_BASIC_AUTH_PASSWORD takes the place of the variable. The kubelet renews a
// mounted file when its Secret changes, but a variable only when the container starts.
// Space around the content is left out.
func Mounted(getenv func(string) string) func(string) string {
	directory := getenv(MountVariable)
	if directory == "" {
		return getenv
	}
	return func(name string) string {
		if content, err := os.ReadFile(filepath.Join(directory, filepath.Base(name))); err == nil {
			return strings.TrimSpace(string(content))
		}
		return getenv(name)
	}
}

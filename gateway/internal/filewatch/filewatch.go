// Package filewatch loads files of keys and certificates, and loads them again when they change.
package filewatch

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"time"
)

// checkInterval is the time between two reads of a file.
const checkInterval = 2 * time.Second

// Load calls load with the content of a file, or with nil if path is empty.
func Load(path string, load func([]byte) error) error {
	if path == "" {
		return load(nil)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return load(content)
}

// Follow calls load with the content of a file at once and after each change, until ctx ends. The first call finds a change since
// Load. Follow returns at once if path is empty. If load returns an error, Follow logs it, and the caller keeps what it had before.
func Follow(ctx context.Context, path string, load func([]byte) error, log *slog.Logger) {
	if path == "" {
		return
	}
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	var last []byte
	for first := true; ; first = false {
		content, err := os.ReadFile(path)
		if changed := !bytes.Equal(content, last); err == nil && (first || changed) {
			last = content
			switch err := load(content); {
			case err != nil:
				log.Error("Cannot use the changed file, keeping the previous content", "file", path, "error", err.Error())
			case !first:
				log.Info("Read the changed file", "file", path)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Lines returns the lines of a file without empty lines and comments.
func Lines(content []byte) []string {
	var all []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

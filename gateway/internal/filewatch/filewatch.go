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

// Follow calls load with the content of a file after each change, until ctx ends. It returns at once if path is empty. If load
// returns an error, Follow logs it, and the caller keeps what it had before.
func Follow(ctx context.Context, path string, load func([]byte) error, log *slog.Logger) {
	if path == "" {
		return
	}
	last, _ := os.ReadFile(path)
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		content, err := os.ReadFile(path)
		if err != nil || bytes.Equal(content, last) {
			continue
		}
		last = content
		if err := load(content); err != nil {
			log.Error("Cannot use the changed file, keeping the previous content", "file", path, "error", err.Error())
			continue
		}
		log.Info("Read the changed file", "file", path)
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

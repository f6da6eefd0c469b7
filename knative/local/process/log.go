package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Log is a file that is appended to. When it would exceed its limit, it is renamed to <name>.1, which replaces an earlier one. It therefore uses at most
// twice the limit. It is safe for concurrent use.
type Log struct {
	path  string
	limit int64

	mu   sync.Mutex
	file *os.File
	size int64
}

// OpenLog opens or creates the log, readable by its owner only, and its directory.
func OpenLog(path string, limit int64) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of log %s: %w", path, err)
	}
	l := &Log{path: path, limit: limit}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

// Path returns the path of the file.
func (l *Log) Path() string { return l.path }

// Write appends. It never returns an error, so that the child can continue: it drops what cannot be
// written.
func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(text)) > l.limit {
		l.rotate()
	}
	n, _ := l.file.Write(text)
	l.size += int64(n)
	return len(text), nil
}

// Close closes the file. Later writes are lost.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("close log %s: %w", l.path, err)
	}
	return nil
}

// Tail returns the last lines of the file, at most n.
func (l *Log) Tail(n int) string {
	const window = 16 << 10
	file, err := os.Open(l.path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > window {
		_, _ = file.Seek(-window, io.SeekEnd)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (l *Log) open() error {
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("read the size of log: %w", err), file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

// rotate continues with the old file if it cannot be replaced.
func (l *Log) rotate() {
	if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	old := l.file
	if err := l.open(); err == nil {
		_ = old.Close()
	}
}

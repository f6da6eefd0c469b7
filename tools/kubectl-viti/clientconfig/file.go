package clientconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// mode is the mode of a file with credentials.
const mode = 0o600

// MergeFile merges a cluster's configuration into a file, which it creates if there is none, and
// reports whether the content is another than before. Readers see either the old content or the new
// one. A lock like the one of kubectl keeps another program from changing the file at the same time.
func MergeFile(path string, merge Merger, added []byte, o Options) (changed bool, err error) {
	if path, err = resolve(path); err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, err
	}
	unlock, err := lock(path)
	if err != nil {
		return false, err
	}
	defer unlock()
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	after, err := merge(before, added, o)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if string(after) == string(before) {
		return false, nil
	}
	return true, replace(path, after)
}

// resolve follows symbolic links, so that a link stays one.
func resolve(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return target, err
}

// lock creates the lock file that kubectl also uses.
func lock(path string) (unlock func(), err error) {
	name := path + ".lock"
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s exists, so another program changes the file: try again, or delete it if there is no such program", name)
	}
	if err != nil {
		return nil, err
	}
	_ = f.Close()
	return func() { _ = os.Remove(name) }, nil
}

// replace writes a file beside the old one and renames it.
func replace(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

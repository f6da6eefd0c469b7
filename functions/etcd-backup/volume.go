package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// volume stores snapshots in a folder.
type volume struct{ dir string }

// pathOf returns the path of a file. The API server has validated the parts of the name;
// pathOf refuses a path outside of the folder nevertheless.
func (v volume) pathOf(name string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", reconcile.UserError{Reason: "InvalidPath", Message: fmt.Sprintf("%q leads out of the folder of backups: write a relative path without ..", name)}
	}
	return filepath.Join(v.dir, filepath.FromSlash(name)), nil
}

func (v volume) Put(_ context.Context, name string, content io.Reader) (err error) {
	target, err := v.pathOf(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := removeAbandoned(filepath.Dir(target)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(target), partName+"*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	_, err = io.Copy(temp, content)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.Rename(temp.Name(), target)
}

// partName is the prefix of the names of unfinished files.
const partName = ".part-"

// removeAbandoned removes unfinished files whose delivery has crashed.
func removeAbandoned(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, gone := e.Info()
		if gone != nil || !strings.HasPrefix(e.Name(), partName) || time.Since(info.ModTime()) < abandonedAfter {
			continue
		}
		if rerr := os.Remove(filepath.Join(dir, e.Name())); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

func (v volume) List(_ context.Context, folder string) ([]file, error) {
	at, err := v.pathOf(folder)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	var files []file
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.IsDir() {
			continue // deleted since the listing, or not a snapshot
		}
		files = append(files, file{path.Join(folder, e.Name()), info.Size()})
	}
	return files, nil
}

func (v volume) Delete(_ context.Context, name string) error {
	at, err := v.pathOf(name)
	if err != nil {
		return err
	}
	err = os.Remove(at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

package workload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// entry is one line of the journal: an object, or its removal.
type entry struct {
	Group  string `json:"g,omitempty"`
	Plural string `json:"p"`
	// Revision is the cluster's revision after the change.
	Revision uint64 `json:"r"`
	// Object is the whole object. It is empty for a removal.
	Object    json.RawMessage `json:"o,omitempty"`
	Namespace string          `json:"ns,omitempty"`
	Name      string          `json:"n,omitempty"`
}

// journal writes every change into a file, one per line, before the change is acknowledged: a killed
// process loses nothing that it has acknowledged.
type journal struct {
	path  string
	file  *os.File
	lines int
}

// openJournal calls replay for each line in path, and opens it for appending. It drops an incomplete
// last line.
func openJournal(path string, replay func(entry) error) (*journal, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, file: file}
	var end int64
	reader := bufio.NewReader(file)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, errors.Join(fmt.Errorf("line %d of %s: %w", j.lines+1, path, err), file.Close())
		}
		if err := replay(e); err != nil {
			return nil, errors.Join(fmt.Errorf("line %d of %s: %w", j.lines+1, path, err), file.Close())
		}
		end += int64(len(line))
		j.lines++
	}
	if err := file.Truncate(end); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := file.Seek(end, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return j, nil
}

func (j *journal) append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.lines++
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// rewrite replaces the journal by the given lines.
func (j *journal) rewrite(entries []entry) error {
	temp, err := os.CreateTemp(filepath.Dir(j.path), ".journal-*")
	if err != nil {
		return err
	}
	w := bufio.NewWriter(temp)
	for _, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			return errors.Join(err, temp.Close(), os.Remove(temp.Name()))
		}
		_, _ = w.Write(append(line, '\n')) // Flush returns the error
	}
	if err := errors.Join(w.Flush(), os.Rename(temp.Name(), j.path)); err != nil {
		return errors.Join(err, temp.Close(), os.Remove(temp.Name()))
	}
	old := j.file
	j.file, j.lines = temp, len(entries)
	return old.Close()
}

func (j *journal) close() error { return j.file.Close() }

func (j *journal) remove() error {
	err := os.Remove(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(j.file.Close(), err)
}

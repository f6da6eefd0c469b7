package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/vitistack/stack/tests/stand/audit"
)

// auditFolder is where engines record the requests of functions, or empty.
func auditFolder() string { return os.Getenv("VITI_AUDIT") }

// Usage is a kind of request that a function has sent to the API server.
type Usage struct {
	Function, Verb, Group, Resource, Subresource string
	Forbidden                                    bool
}

// String returns the right that it requires.
func (u Usage) String() string {
	resource := u.Resource
	if u.Subresource != "" {
		resource += "/" + u.Subresource
	}
	if u.Group != "" {
		resource += "." + u.Group
	}
	return u.Function + " " + resource + " " + u.Verb
}

// Requests returns the requests that the API server has answered since a time. The engine needs the flag --audit.
func (e *Engine) Requests(since time.Time) []audit.Request {
	e.t.Helper()
	all, err := audit.Read(filepath.Join(e.Dir, "logs"), since)
	if err != nil {
		e.t.Fatal(err)
	}
	return all
}

// noteUsage records the requests of functions in this run of the engine.
func (e *Engine) noteUsage() {
	if auditFolder() == "" {
		return
	}
	all := map[Usage]bool{}
	for _, r := range e.Requests(time.Time{}) {
		if function := r.Function(); function != "" {
			all[Usage{
				Function: function, Verb: r.Verb, Group: r.ObjectRef.APIGroup, Resource: r.ObjectRef.Resource,
				Subresource: r.ObjectRef.Subresource, Forbidden: r.ResponseStatus.Code == http.StatusForbidden,
			}] = true
		}
	}
	if err := writeUsage(all); err != nil {
		e.t.Errorf("note what functions ask for: %v", err)
	}
}

func writeUsage(all map[Usage]bool) error {
	var list []Usage
	for usage := range all {
		list = append(list, usage)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(auditFolder(), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(auditFolder(), "*.json")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// ReadUsage returns the requests that all engines have recorded in a folder. It returns an error if
// there are none.
func ReadUsage(dir string) ([]Usage, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Usage
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var list []Usage
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, list...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("nothing is noted in %s: run the end-to-end and chaos tests with VITI_AUDIT set to it", dir)
	}
	return all, nil
}

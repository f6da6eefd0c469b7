// Package audit reads the audit log of an API server.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Request is an answered request in the audit log of an API server.
type Request struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Stage    string    `json:"stage"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Answered time.Time `json:"stageTimestamp"`
}

// Took returns how long the API server has taken for a request.
func (r Request) Took() time.Duration { return r.Answered.Sub(r.Received) }

// Writes reports whether a request modifies something.
func (r Request) Writes() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !strings.HasSuffix(r.ObjectRef.Resource, "reviews") && r.ObjectRef.Subresource != "token"
	default:
		return false
	}
}

// Resource returns the resource of a request, with its subresource if it has one.
func (r Request) Resource() string {
	if r.ObjectRef.Subresource != "" {
		return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
	}
	return r.ObjectRef.Resource
}

// Heartbeat reports whether the gateway renews a Lease of the heartbeats, or the real virt-controller its Lease as the
// leader, which they also do while nothing else happens.
func (r Request) Heartbeat() bool {
	if r.ObjectRef.Resource == "leases" && r.ObjectRef.Namespace == "kubevirt" && r.ObjectRef.Name == "virt-controller" {
		return true
	}
	return r.Verb == "patch" && r.Function() == "gateway" && r.ObjectRef.Resource == "leases" && strings.HasPrefix(r.ObjectRef.Name, "heartbeat-")
}

// Function returns the name of the function that sent the request, or an empty string.
func (r Request) Function() string {
	name, ok := strings.CutPrefix(r.User.Username, "system:serviceaccount:vitistack-system:")
	if !ok {
		return ""
	}
	return name
}

// Read returns the requests that an API server has answered since a time, from the audit logs in a folder.
func Read(folder string, since time.Time) (all []Request, err error) {
	// A rotated log has the time of its end in its name.
	logs, _ := filepath.Glob(filepath.Join(folder, "audit*.log"))
	for _, log := range logs {
		if info, err := os.Stat(log); err != nil || info.ModTime().Before(since) {
			continue
		}
		requests, err := readLog(log, since)
		if err != nil {
			return nil, err
		}
		all = append(all, requests...)
	}
	return all, nil
}

// readLog reads the answered requests since a time from an audit log. It skips what a killed API server has not finished. A line has as many
// bytes as the request that it is about.
func readLog(log string, since time.Time) (all []Request, err error) {
	file, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var r Request
		if json.Unmarshal(line, &r) == nil && r.Stage == "ResponseComplete" && !r.Received.Before(since) {
			all = append(all, r)
		}
	}
}

package proxmox_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

const (
	tokenID = "viti@pve!stack"
	secret  = "0b5bd1a4-1f64-4f3c-9a1c-9b6f4b1c3a51"
)

var everything = []proxmox.Grant{{Path: "/", Privileges: proxmox.Administrator}}

// env is a cluster with a client of its API.
type env struct {
	*testing.T
	server *proxmox.Server
	url    string
	client *http.Client
	header http.Header
}

func setUp(t *testing.T, options proxmox.Options) *env {
	t.Helper()
	if options.Users == nil {
		options.Users = []proxmox.User{{Name: "viti@pve", Password: "pass", Grants: everything}}
	}
	if options.Tokens == nil {
		options.Tokens = []proxmox.Token{{ID: tokenID, Secret: secret}}
	}
	server, err := proxmox.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	endpoint, err := server.Start(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(endpoint.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &env{
		T: t, server: server, url: endpoint.URL + "/api2/json", client: &http.Client{Transport: transport},
		header: http.Header{"Authorization": {"PVEAPIToken=" + tokenID + "=" + secret}},
	}
}

// answer is the response to a call.
type answer struct {
	status string
	Data   json.RawMessage   `json:"data"`
	Errors map[string]string `json:"errors"`
	// Message is the whole message of an error.
	Message string `json:"message"`
}

type params map[string]any

// call makes one call, with a JSON body for POST and PUT.
func (r *env) call(method, path string, with params) answer {
	r.Helper()
	var body io.Reader
	if with != nil {
		data, err := json.Marshal(with)
		if err != nil {
			r.Fatal(err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(r.Context(), method, r.url+path, body)
	if err != nil {
		r.Fatal(err)
	}
	request.Header = r.header.Clone()
	if with != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := r.client.Do(request)
	if err != nil {
		return answer{status: "broken"}
	}
	defer func() { _ = response.Body.Close() }()
	a := answer{status: response.Status}
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		r.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// do makes a call that has to succeed, and returns its data.
func (r *env) do(method, path string, with params) json.RawMessage {
	r.Helper()
	a := r.call(method, path, with)
	if a.status != "200 OK" {
		r.Fatalf("%s %s: %s %s %v", method, path, a.status, a.Message, a.Errors)
	}
	return a.Data
}

// get reads the data of a path.
func (r *env) get(path string, into any) {
	r.Helper()
	if err := json.Unmarshal(r.do(http.MethodGet, path, nil), into); err != nil {
		r.Fatalf("GET %s: %v", path, err)
	}
}

// task makes a call that starts a task, and returns how the task ended.
func (r *env) task(method, path string, with params) string {
	r.Helper()
	var upid string
	if err := json.Unmarshal(r.do(method, path, with), &upid); err != nil {
		r.Fatal(err)
	}
	return r.end(upid)
}

// end waits for a task.
func (r *env) end(upid string) string {
	r.Helper()
	node := strings.Split(upid, ":")[1]
	for r.Context().Err() == nil {
		var status struct{ Status, ExitStatus string }
		r.get("/nodes/"+node+"/tasks/"+upid+"/status", &status)
		if status.Status == "stopped" {
			return status.ExitStatus
		}
		time.Sleep(time.Millisecond)
	}
	return "not ended"
}

// done makes a call whose task has to succeed.
func (r *env) done(method, path string, with params) {
	r.Helper()
	if exit := r.task(method, path, with); exit != "OK" {
		r.Fatalf("%s %s: task ended with %q", method, path, exit)
	}
}

// config returns the configuration of a machine.
func (r *env) config(node string, id int) map[string]any {
	r.Helper()
	config := map[string]any{}
	r.get(fmt.Sprintf("/nodes/%s/qemu/%d/config", node, id), &config)
	return config
}

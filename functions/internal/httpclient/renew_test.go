package httpclient_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/stack/functions/internal/httpclient"
)

// TestRenew changes the password of a server, and then that of the client.
func TestRenew(t *testing.T) {
	t.Parallel()
	var accepted, written atomic.Value
	var asked, read atomic.Int32
	accepted.Store("first")
	written.Store("first")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if _, password, _ := r.BasicAuth(); password != accepted.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(server.Close)
	config := httpclient.Config{URL: server.URL, Username: "stack", Password: "first"}
	config.Renew = func() (httpclient.Config, error) {
		read.Add(1)
		renewed := config
		renewed.Password = written.Load().(string)
		return renewed, nil
	}
	c := client(t, config)
	do := func() error {
		_, err := c.Do(t.Context(), httpclient.Request{Method: http.MethodPost, Body: "content"}, nil)
		return err
	}
	if err := do(); err != nil || read.Load() != 0 {
		t.Fatalf("valid credentials were read %d times more: %v", read.Load(), err)
	}
	accepted.Store("second")
	written.Store("second")
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if err := do(); err != nil {
				t.Errorf("the new password is in the file, but: %v", err)
			}
		})
	}
	all.Wait()
	if read.Load() != 1 {
		t.Errorf("the credentials were read %d times for ten concurrent requests, want once", read.Load())
	}
	accepted.Store("third")
	before := asked.Load()
	for range 5 {
		var refused *httpclient.Error
		if err := do(); !errors.As(err, &refused) || refused.Kind != httpclient.Unauthorized {
			t.Fatalf("the third password is not in the file, got %v", err)
		}
	}
	if got := asked.Load() - before; got != 5 || read.Load() > 2 {
		t.Errorf("five requests with a wrong password became %d, and the credentials were read %d times", got, read.Load())
	}
}

// TestRenewTrust replaces the certificates of server and client with those of another authority.
func TestRenewTrust(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	old, renewed := newAuthority(t), newAuthority(t)
	url := renewed.serve(renewed.issue("127.0.0.1", later))
	trust := func(a *authority) httpclient.Config {
		cert, key := a.issue("client", later)
		return httpclient.Config{URL: url, TLS: httpclient.TLS{CA: a.pem, Cert: cert, Key: key}}
	}
	config := trust(old)
	config.Renew = func() (httpclient.Config, error) { return trust(renewed), nil }
	if _, err := client(t, config).Do(t.Context(), httpclient.Request{Method: http.MethodGet}, nil); err != nil {
		t.Errorf("the new certificates are in the files, but: %v", err)
	}
}

func TestMounted(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "PASSWORD"), []byte("mounted\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"PASSWORD": "environment", "OTHER": "other", "../PASSWORD": "kept"}
	getenv := func(name string) string { return environment[name] }
	if got := httpclient.Mounted(getenv)("PASSWORD"); got != "environment" {
		t.Errorf("without a directory: got %q", got)
	}
	environment[httpclient.MountVariable] = directory
	mounted := httpclient.Mounted(getenv)
	for name, want := range map[string]string{"PASSWORD": "mounted", "OTHER": "other", "MISSING": ""} {
		if got := mounted(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

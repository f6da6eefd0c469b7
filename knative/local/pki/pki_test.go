package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// contents returns the files of a directory by name, and fails if one is readable by others.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o, want 600", path, mode)
		}
		text, err := os.ReadFile(path)
		files[entry.Name()] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	now := time.Now()
	keep := []string{"admin.crt", "admin.key", "apiserver.crt", "apiserver.key", "ca.crt", "ca.key", "service-account.key"}
	cases := map[string]struct {
		reason string
		later  time.Duration
		remove []string
		want   []string // files that do not change
	}{
		"Again":          {reason: "existing files are kept", want: keep},
		"Expiring":       {reason: "certificates are renewed before they expire, the signing key is kept", later: lifetime - renewal + time.Hour, want: []string{"service-account.key"}},
		"CALost":         {reason: "certificates of a lost CA are replaced", remove: []string{"ca.key"}, want: []string{"service-account.key"}},
		"AdminLost":      {reason: "only the lost file is created", remove: []string{"admin.crt"}, want: []string{"apiserver.crt", "apiserver.key", "ca.crt", "ca.key", "service-account.key"}},
		"SigningKeyLost": {reason: "only the lost file is created", remove: []string{"service-account.key"}, want: []string{"admin.crt", "admin.key", "apiserver.crt", "apiserver.key", "ca.crt", "ca.key"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "pki")
			if _, err := Ensure(dir, now); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			for _, file := range tc.remove {
				if err := os.Remove(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := Ensure(dir, now.Add(tc.later)); err != nil {
				t.Fatal(err)
			}
			after := contents(t, dir)
			var same []string
			for _, file := range keep {
				if after[file] == before[file] {
					same = append(same, file)
				}
				if after[file] == "" {
					t.Errorf("%s: %s is missing", tc.reason, file)
				}
			}
			if diff := cmp.Diff(tc.want, same); diff != "" {
				t.Errorf("%s: unchanged files (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(dir, time.Now()); err == nil {
		t.Error("a damaged file was replaced silently")
	}
}

// TestHandshake uses the certificates as the API server and its administrator do.
func TestHandshake(t *testing.T) {
	t.Parallel()
	files, err := Ensure(t.TempDir(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair := func(cert, key string) tls.Certificate {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	text, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.TLS.PeerCertificates[0].Subject.String()))
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair(files.ServingCert, files.ServingKey)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{pair(files.AdminCert, files.AdminKey)},
	}}}
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	buffer := make([]byte, 100)
	n, err := response.Body.Read(buffer)
	if n == 0 {
		t.Fatal(errors.Join(errors.New("no answer"), err))
	}
	if diff := cmp.Diff("CN=admin,O=system:masters", string(buffer[:n])); diff != "" {
		t.Errorf("the administrator (-want +got):\n%s", diff)
	}
}

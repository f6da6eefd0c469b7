package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck reads settings as the gateway does at its start, while another one runs with the same.
func TestCheck(t *testing.T) {
	t.Parallel()
	running, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Close() })
	address := running.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	empty := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hook := func(rest string) string { return `[{"name":"hook","url":"https://hooks.example.com"` + rest + `}]` }
	for name, tc := range map[string]struct {
		reason string
		env    map[string]string
		says   string
	}{
		"Valid":     {reason: "the ports of a running gateway are not opened", env: map[string]string{"PORT": port, "NODE_EVENTS_ADDRESS": address}},
		"Database":  {reason: "the database is not connected to", env: map[string]string{"DATABASE_URL": "mysql://u:p@127.0.0.1:1/db?tls=true"}},
		"Parameter": {reason: "the parameter has no effect", env: map[string]string{"DATABASE_URL": "mysql://u:p@127.0.0.1:1/db?ssl-mode=required"}, says: `its parameter "ssl-mode" has no effect`},
		"Unsigned":  {reason: "the file has no secret", env: map[string]string{"HANDLERS_WEBHOOK_ENDPOINTS": hook(`,"secretFile":"` + empty + `"`)}, says: empty + " is empty"},
		"Secret":    {reason: "the secret is none", env: map[string]string{"HANDLERS_WEBHOOK_ENABLED": "true", "HANDLERS_WEBHOOK_ENDPOINTS": hook(`,"secret":"whsec_?"`)}, says: "handlers.webhook.endpoints: endpoint 0: secret"},
		"Keys":      {reason: "the file does not exist", env: map[string]string{"AUTH_ENABLED": "true", "AUTH_KEYSFILE": "/nowhere/keys"}, says: "/nowhere/keys"},
		"Number":    {reason: "the port is no number", env: map[string]string{"PORT": "many"}, says: "environment variable PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			var out bytes.Buffer
			err := check([]string{"--state.dir=" + state}, func(name string) (string, bool) { value, ok := tc.env[name]; return value, ok }, &out)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, although %s", err, tc.reason)
			}
			if (err == nil) != strings.Contains(out.String(), "The gateway starts with these settings.") {
				t.Errorf("with error %v it says %s", err, &out)
			}
			if files, _ := os.ReadDir(state); len(files) > 0 {
				t.Errorf("it has created %v", files)
			}
		})
	}
}

package config_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/gateway/internal/config"
)

func environment(of map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := of[name]
		return v, ok
	}
}

func load(t *testing.T, args []string, env map[string]string, file string) (*config.Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "gateway.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"--config=" + path}, args...)
	}
	return config.Load(args, environment(env), io.Discard)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(t, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Server{
		Host: "0.0.0.0", Port: 9991, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 120 * time.Second,
		MaxHeaderBytes: 1048576, MaxBodyBytes: 2 << 20, MaxBodies: 16, MaxConnections: 512, MaxConnectionsPerAddress: 128, TrustedProxies: []string{},
		AllowedHosts: []string{},
	}
	if diff := cmp.Diff(want, c.Server); diff != "" {
		t.Errorf("server (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/health", "/ready"}, c.Logging.ExcludePaths); diff != "" {
		t.Errorf("excluded paths (-want +got):\n%s", diff)
	}
	if c.Operators["kubevirt"].Namespace != "kubevirt" || c.Operators["kubevirt"].SyncInterval != 45*time.Second || c.Operators["kea"].SyncInterval != 30*time.Second {
		t.Errorf("operators: %+v", c.Operators)
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := "server:\n  port: 1\n"
	cases := map[string]struct {
		reason string
		args   []string
		env    map[string]string
		file   string
		want   int
	}{
		"Default": {reason: "no value is set", want: 9991},
		"File":    {reason: "a file overrides the default", file: file, want: 1},
		"Rule":    {reason: "an environment variable overrides the file", file: file, env: map[string]string{"SERVER_PORT": "2"}, want: 2},
		"Flat":    {reason: "PORT, which Knative sets, overrides the general variable", file: file, env: map[string]string{"SERVER_PORT": "2", "PORT": "3"}, want: 3},
		"Flag":    {reason: "a flag overrides everything", file: file, env: map[string]string{"PORT": "3"}, args: []string{"--server.port=4"}, want: 4},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := load(t, tc.args, tc.env, tc.file)
			if err != nil {
				t.Fatal(err)
			}
			if c.Server.Port != tc.want {
				t.Errorf("%s: port %d, want %d", tc.reason, c.Server.Port, tc.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		env    map[string]string
		file   string
		names  []string
	}{
		"UnknownKey":  {reason: "an unknown key is a typing error", file: "server:\n  prot: 1\n", names: []string{"server.prot"}},
		"WrongPlace":  {reason: "the error suggests the place of a misplaced key", file: "maxAge: 1\n", names: []string{"maxAge", "cors.maxAge"}},
		"BadNumber":   {reason: "a port is a number", file: "server:\n  port: many\n", names: []string{"server.port"}},
		"List":        {reason: "one value is not a list", file: "server:\n  port: [1, 2]\n", names: []string{"server.port"}},
		"BadEnv":      {reason: "the error names the variable", env: map[string]string{"CORS_MAXAGE": "x"}, names: []string{"CORS_MAXAGE"}},
		"BadLevel":    {reason: "the error names the levels", env: map[string]string{"LOG_LEVEL": "loud"}, names: []string{"LOG_LEVEL", "debug"}},
		"BadSink":     {reason: "a sink is a URL", env: map[string]string{"K_SINK": "broker"}, names: []string{"K_SINK"}},
		"BadEvents":   {reason: "events of nodes need a port", env: map[string]string{"NODE_EVENTS_ADDRESS": "9993"}, names: []string{"NODE_EVENTS_ADDRESS", ":9993"}},
		"EventsName":  {reason: "the gateway listens on an IP address", env: map[string]string{"NODE_EVENTS_ADDRESS": "events.example.com:9993"}, names: []string{"NODE_EVENTS_ADDRESS"}},
		"UnknownFlag": {reason: "the error names the flag", args: []string{"--nothing=1"}, names: []string{"nothing"}},
		"Argument":    {reason: "only flags are arguments", args: []string{"serve"}, names: []string{"serve"}},
		"Duplicate":   {reason: "a key is unique", file: "cors:\n  maxAge: 1\n  maxAge: 2\n", names: []string{"maxAge"}},
		"NoYAML":      {reason: "a file is YAML", file: "\t:", names: []string{"gateway.yaml"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.args, tc.env, tc.file)
			if err == nil {
				t.Fatalf("%s: it was accepted", tc.reason)
			}
			for _, name := range tc.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("%s: the error does not name %s: %v", tc.reason, name, err)
				}
			}
		})
	}
}

// TestEmptySecretFile refuses a webhook whose secret is missing, which would get events without a signature.
func TestEmptySecretFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	endpoints := map[string]string{"HANDLERS_WEBHOOK_ENDPOINTS": `[{"url":"https://tickets.example.com","secretFile":"` + path + `"}]`}
	for content, valid := range map[string]bool{"": false, "\n": false, "whsec_c2VjcmV0\n": true} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t, nil, endpoints, ""); (err == nil) != valid || err != nil && !strings.Contains(err.Error(), path+" is empty: write a secret into it") {
			t.Errorf("a file with %q: %v", content, err)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var usage bytes.Buffer
	_, err := config.Load([]string{"--help"}, environment(nil), &usage)
	if !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("got %v", err)
	}
	for _, k := range new(config.Config).Keys() {
		if !strings.Contains(usage.String(), "--"+k.Name+" ") {
			t.Errorf("the usage lacks %s", k.Name)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add("server:\n  port: 1\n")
	f.Add("cors: {allowedOrigins: [a, b]}\nlogging.enabled: true\n")
	f.Add("- 1\n")
	f.Fuzz(func(t *testing.T, file string) {
		path := filepath.Join(t.TempDir(), "gateway.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load([]string{"--config=" + path}, environment(nil), io.Discard)
		if (c == nil) == (err == nil) {
			t.Fatal("either a configuration or an error")
		}
		if err == nil && (c.Server.Port < 0 || c.Server.Port > 65535) {
			t.Errorf("port %d was accepted", c.Server.Port)
		}
	})
}

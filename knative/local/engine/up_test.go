package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func command(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	return string(out), err
}

// TestKilledEngineLeavesNothing runs the program as a user does and kills it.
func TestKilledEngineLeavesNothing(t *testing.T) {
	o, _ := testOptions(t)
	out := &output{}
	args := []string{"up", "--root=" + o.Root, "--state=" + o.State, "--bin=" + o.Bin, "--gateway-port=0"}
	first := exec.CommandContext(t.Context(), o.Self, args...)
	first.Stdout, first.Stderr = out, out
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	r := &env{t: t, options: o, out: out}
	r.eventually("engine.json appears", func() bool {
		text, err := os.ReadFile(filepath.Join(o.State, "engine.json"))
		return err == nil && json.Unmarshal(text, &r.summary) == nil
	})
	if second, err := command(t, o.Self, args...); err == nil || !strings.Contains(second, fmt.Sprintf("process %d, uses it", first.Process.Pid)) {
		t.Errorf("a second engine on the same state: %v\n%s", err, second)
	}
	processes := r.report().Processes
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	for _, status := range processes {
		if status.PID != 0 {
			r.eventually(status.Name+" is gone", func() bool { return gone(status.PID) })
		}
	}

	// The next run can use the remaining state. A signal ends it with status 0.
	next := exec.CommandContext(t.Context(), o.Self, args...)
	next.Stdout, next.Stderr = out, out
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	r.eventually("engine.json is that of the next run", func() bool {
		text, err := os.ReadFile(filepath.Join(o.State, "engine.json"))
		return err == nil && json.Unmarshal(text, &r.summary) == nil && r.summary.PID == next.Process.Pid
	})
	if err := next.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := next.Wait(); err != nil {
		t.Errorf("after SIGINT: %v\n%s", err, out)
	}
}

// TestInterruptedStart stops the program at several moments of its start.
func TestInterruptedStart(t *testing.T) {
	o, _ := testOptions(t)
	for _, until := range []string{"Starting in", "etcd and kube-apiserver", "objects"} {
		out := &output{}
		program := exec.CommandContext(t.Context(), o.Self, "--root="+o.Root, "--state="+o.State, "--bin="+o.Bin, "--gateway-port=0")
		program.Stdout, program.Stderr = out, out
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- program.Wait() }()
		for end := time.Now().Add(deadline); !strings.Contains(out.String(), until); {
			select {
			case err := <-ended:
				t.Fatalf("the program ended before it printed %q: %v\n%s", until, err, out)
			case <-time.After(5 * time.Millisecond):
			}
			if time.Now().After(end) {
				t.Fatalf("the program has not printed %q within %s:\n%s", until, deadline, out)
			}
		}
		if err := program.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || !strings.Contains(out.String(), "Stopped in") {
			t.Errorf("stopped after %q: %v\n%s", until, err, out)
		}
	}
}

// TestHalfEstablished starts with CRDs whose names the API server had accepted, but which it had not established when it was stopped.
func TestHalfEstablished(t *testing.T) {
	o, out := testOptions(t)
	if err := startRig(t, o, out).stop(); err != nil {
		t.Fatal(err)
	}
	editStored(t, o, "/registry/apiextensions.k8s.io/customresourcedefinitions/", func(crd []byte) []byte {
		// All other bytes are unchanged: the API server would otherwise write the CRD, and establish it, when it is applied unchanged.
		accepted := establishedCondition.ReplaceAll(crd, []byte(`${1}"False"${2}"Installing"${3}"the initial names have been accepted"`))
		if bytes.Equal(crd, accepted) {
			t.Fatalf("not established: %s", crd)
		}
		return accepted
	})
	startRig(t, o, out)
}

var establishedCondition = regexp.MustCompile(`("type":"Established","status":)"True"([^}]*"reason":)"[^"]*"(,"message":)"[^"]*"`)

// editStored changes what etcd stores under a prefix, while no API server runs.
func editStored(t *testing.T, o Options, prefix string, edit func([]byte) []byte) {
	t.Helper()
	ready, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ready.Close() }()
	etcd := exec.CommandContext(t.Context(), o.Self, "etcd", "--data-dir=etcd")
	etcd.Dir, etcd.ExtraFiles = o.State, []*os.File{child}
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(etcd.Process.Signal(syscall.SIGTERM), etcd.Wait()); err != nil {
			t.Errorf("stop etcd: %v", err)
		}
	}()
	_ = child.Close()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatalf("etcd does not start: %v", err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(o.State, "etcd.sock")}, DialTimeout: deadline})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	found, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil || found.Count == 0 {
		t.Fatalf("read %s: %d keys, %v", prefix, found.Count, err)
	}
	for _, entry := range found.Kvs {
		if _, err := client.Put(t.Context(), string(entry.Key), string(edit(entry.Value))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMistakes starts engines that must fail at once, with a message that names the remedy.
func TestMistakes(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Close() })
	cases := map[string]struct {
		reason   string
		manifest string // added to the manifests
		args     []string
		want     []string
	}{
		"NoBinary":      {reason: "the error names all missing binaries", args: []string{"--bin=" + t.TempDir()}, want: []string{"Service paint", "Deployment gateway", "/function is no program", "--bin"}},
		"PortTaken":     {reason: "the error names the flag", args: []string{fmt.Sprintf("--gateway-port=%d", portOf(busy))}, want: []string{fmt.Sprint(portOf(busy)), "--gateway-port"}},
		"APIPortTaken":  {reason: "the error names the flag", args: []string{fmt.Sprintf("--apiserver-port=%d", portOf(busy))}, want: []string{fmt.Sprint(portOf(busy)), "--apiserver-port"}},
		"NotYAML":       {reason: "the error names file and document", manifest: "a: b\n---\n: {", want: []string{"extra.yaml, document"}},
		"NoKind":        {reason: "the error names the missing field", manifest: "apiVersion: v1\nmetadata: {name: x}", want: []string{"extra.yaml, document 1", "kind must be set"}},
		"UnknownKind":   {reason: "the error names the known kinds", manifest: "apiVersion: messaging.knative.dev/v1\nkind: Channel\nmetadata: {name: x}", want: []string{"extra.yaml, document 1 (Channel x)", "does not carry out", "PingSource"}},
		"UnknownField":  {reason: "the error names the field", manifest: "apiVersion: eventing.knative.dev/v1\nkind: Trigger\nmetadata: {name: x, namespace: vitistack-system}\nspec: {broker: vitistack, subscribers: {}}", want: []string{"extra.yaml, document 1 (Trigger vitistack-system/x)", "subscribers"}},
		"InvalidFilter": {reason: "the error has Knative's words", manifest: trigger("filters: [{cesql: 'a ='}]"), want: []string{"extra.yaml, document 1", "spec.filters"}},
		"NoSubscriber":  {reason: "the error names a destination that does not run here", manifest: trigger("") + "\n    ref: {apiVersion: serving.knative.dev/v1, kind: Service, name: missing}", want: []string{"Trigger vitistack-system/x", "missing", "does not run here"}},
		"ForeignImage":  {reason: "the error has the form of an image", manifest: strings.ReplaceAll(service, "ko://example.com/x", "nginx"), want: []string{"extra.yaml, document 1 (Service vitistack-system/x)", "nginx", "ko://"}},
		"SecretVolume":  {reason: "volumes with content cannot be mounted", manifest: service + "\n          volumeMounts: [{name: v, mountPath: /v}]\n      volumes: [{name: v, secret: {secretName: s}}]", want: []string{"volume v of vitistack-system/x", "environment variables"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, _ := testOptions(t, tc.args...)
			if tc.manifest != "" {
				o.Root = filepath.Join(t.TempDir(), "root")
				if err := os.CopyFS(o.Root, os.DirFS("testdata/root")); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(o.Root, "knative", "extra.yaml"), []byte(tc.manifest), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := Run(t.Context(), o)
			if err == nil {
				t.Fatalf("%s: the engine started", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error lacks %q:\n%v", tc.reason, want, err)
				}
			}
			if errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: the error is about a file that does not exist: %v", tc.reason, err)
			}
		})
	}
}

func trigger(filters string) string {
	return "apiVersion: eventing.knative.dev/v1\nkind: Trigger\nmetadata: {name: x, namespace: vitistack-system}\nspec:\n  broker: vitistack\n  " +
		filters + "\n  subscriber:" + map[bool]string{true: " {uri: http://localhost/}", false: ""}[filters != ""]
}

const service = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: x, namespace: vitistack-system}
spec:
  template:
    spec:
      containers:
        - image: ko://example.com/x`

// TestStateTaken refuses the directory of a running engine, and names what selects another.
func TestStateTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = openState(dir)
	for _, want := range []string{dir, fmt.Sprintf("process %d,", os.Getpid()), "--state (of make run: STATE=...)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

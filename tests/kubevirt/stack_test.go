package kubevirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/kubernetes"
)

// stack is the stack with the KubeVirt of the node.
type stack struct {
	*env
	home string // the kubeconfig of the stack's cluster
}

// startLocalEngine starts the stack on the local engine until the test ends. The Secret real has the credentials of KubeVirt.
func (e *env) startLocalEngine() *stack {
	e.T.Helper()
	s := &stack{env: e, home: engine.Start(e.T, "--config", "ALLOWED_IMAGE_HOSTS="+kubernetes.Address).Kubeconfig()}
	e.Step("the stack runs on the local engine")
	s.inStack("", "create", "secret", "generic", "real", "-n", "vitistack-system", "--from-literal=kubeconfig="+e.Kubectl("config", "view", "--flatten", "--minify"))
	return s
}

// applyWith applies a manifest, in which it replaces names by values and those of the network of guests.
func (s *stack) applyWith(manifest string, replacements ...string) {
	s.T.Helper()
	replacements = append(replacements, "NETWORK", guestNetwork, "GATEWAY", guestGateway, "FIRST", guestFirst, "LAST", guestLast)
	s.inStack(strings.NewReplacer(replacements...).Replace(manifest), "apply", "--server-side", "-f", "-")
}

// inStack runs kubectl in the stack's cluster, and returns its output.
func (s *stack) inStack(input string, args ...string) string {
	s.T.Helper()
	out, err := s.Run(s.T.Context(), input, "kubectl", append([]string{"--kubeconfig", s.home}, args...)...)
	if err != nil {
		s.T.Fatal(err)
	}
	return out
}

// status is what the tests read of the status of an object.
type status struct {
	Phase       string
	IPAddresses []string
	Conditions  []struct{ Type, Status, Reason, Message string }
}

// status returns the status of an object, given as KIND/NAME.
func (s *stack) status(ctx context.Context, object string) (status, error) {
	var read struct{ Status status }
	out, err := s.Run(ctx, "", "kubectl", "--kubeconfig", s.home, "get", object, "-o", "json")
	if err != nil {
		return status{}, err
	}
	err = json.Unmarshal([]byte(out), &read)
	return read.Status, err
}

// awaitDeleted waits until KubeVirt has no object of some kinds, and no QEMU runs.
func (s *stack) awaitDeleted(kinds string) {
	s.T.Helper()
	s.Await("everything is deleted", 2*time.Minute, func(ctx context.Context) error {
		out, err := s.Run(ctx, "", "kubectl", "get", kinds, "-n", "default", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("these are left: %s", out)
		}
		return errors.Join(err, requireGuests(0))
	})
}

// requireEmulation fails the test unless one guest runs, without the help of the processor.
func (s *stack) requireEmulation() {
	s.T.Helper()
	if err := requireGuests(1); err != nil {
		s.T.Fatal(err)
	}
	for _, args := range guests() {
		if !strings.Contains(args, "accel=tcg") && !strings.Contains(args, "-accel\x00tcg") {
			s.T.Errorf("QEMU does not emulate: %q", args)
		}
	}
}

// guests returns the arguments of each QEMU in the lab.
func guests() (all []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if program, _, _ := strings.Cut(string(text), "\x00"); err == nil && strings.HasPrefix(filepath.Base(program), "qemu-system-") && strings.Contains(string(text), "\x00-name\x00guest=") {
			all = append(all, string(text))
		}
	}
	return all
}

// requireGuests returns an error unless a number of guests runs.
func requireGuests(count int) error {
	if running := len(guests()); running != count {
		return fmt.Errorf("%d guests run, want %d", running, count)
	}
	return nil
}

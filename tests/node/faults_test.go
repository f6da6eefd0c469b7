package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vitistack/stack/tests/stand/knative"
	"github.com/vitistack/stack/tests/stand/kubernetes"
)

// faults kills one part after the other with SIGKILL while machines are being created, and requires that all of them
// become Running.
func (e *env) faults() {
	type fault struct {
		name string
		kill func() error
	}
	var all []fault
	for _, name := range []string{"none", "activator", "ingress", "filter", "channel_dispatcher", "apiserver_receive_adapter", "create-vm"} {
		all = append(all, fault{name, func() error { return killContainers(name) }})
	}
	for _, name := range []string{"kube-apiserver", "etcd", "kubelet", "containerd", "kube-proxy"} {
		all = append(all, fault{name, func() error { e.Services[name].Kill(); return nil }})
	}
	all[0].kill = func() error { return nil }
	all = append(all, fault{"everything", e.killEverything})
	table := e.results.Table("Faults", "5 machines are created, and this is killed: until all are Running")
	for i, f := range all {
		prefix := fmt.Sprintf("fault-%d-", i)
		start := time.Now()
		e.createMachines(prefix, 5)
		if err := f.kill(); err != nil {
			e.T.Fatalf("kill %s: %v", f.name, err)
		}
		e.awaitRunning(prefix, 5)
		table.Row(f.name, time.Since(start))
		e.Step("killed: %s", f.name)
		e.deleteMachines(prefix)
	}
	e.Await("everything is Ready after the faults", 5*time.Minute, e.RequireInstalled)
}

// killContainers kills all processes of a program in containers. It returns an error if there is none, except for a
// function, which may have no pod.
func killContainers(program string) error {
	killed, err := kill(func(args []string) bool { return args[0] == "/ko-app/"+program })
	if err == nil && killed == 0 && !slices.Contains(knative.Functions, program) {
		err = errors.New("no container runs it")
	}
	return err
}

// killEverything kills all services of the node and all containers at once, as a loss of power does.
func (e *env) killEverything() error {
	for _, name := range slices.Concat(kubernetes.Worker, []string{kubernetes.NetworkPolicies}, kubernetes.ControlPlane) {
		e.Services[name].Kill()
	}
	_, err := kill(func(args []string) bool {
		return strings.HasPrefix(args[0], "/ko-app/") || strings.HasPrefix(filepath.Base(args[0]), "containerd-shim")
	})
	return err
}

// kill kills the processes of the lab whose arguments match, and returns their number.
func kill(matches func(args []string) bool) (killed int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		args := strings.Split(string(text), "\x00")
		if err != nil || !matches(args) {
			continue // it has ended, or it is another one
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return killed, err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed++
		}
	}
	return killed, nil
}

func (e *env) createMachines(prefix string, count int) {
	e.T.Helper()
	var manifest strings.Builder
	for i := range count {
		fmt.Fprintf(&manifest, "---\n{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: %s%d, namespace: default}, spec: {template: small}}\n", prefix, i)
	}
	e.Apply(manifest.String())
}

// awaitRunning waits until all machines with a prefix are Running.
func (e *env) awaitRunning(prefix string, count int) {
	e.T.Helper()
	e.Await(fmt.Sprintf("%d machines %s* are Running", count, prefix), 5*time.Minute, func(ctx context.Context) error {
		machines, err := e.List(ctx, "machines", "-n", "default")
		if err != nil {
			return err
		}
		running := 0
		var errs []error
		for _, m := range machines {
			if !strings.HasPrefix(m.Metadata.Name, prefix) {
				continue
			}
			if m.Status.Phase == "Running" {
				running++
				continue
			}
			_, why := m.Condition("Ready")
			errs = append(errs, fmt.Errorf("%s is %s: %s", m.Metadata.Name, m.Status.Phase, why))
		}
		if running != count {
			return errors.Join(append(errs, fmt.Errorf("%d of %d are Running", running, count))...)
		}
		return nil
	})
}

func (e *env) deleteMachines(prefix string) {
	e.T.Helper()
	machines, err := e.List(e.T.Context(), "machines", "-n", "default")
	if err != nil {
		e.T.Fatal(err)
	}
	args := []string{"delete", "machines", "-n", "default", "--timeout=240s"}
	for _, m := range machines {
		if strings.HasPrefix(m.Metadata.Name, prefix) {
			args = append(args, m.Metadata.Name)
		}
	}
	e.Kubectl(args...)
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/vitistack/stack/knative/local/manifest"
	"github.com/vitistack/stack/knative/local/process"
)

// inherited are the variables that a program inherits from the engine's own environment.
var inherited = []string{"PATH", "HOME", "TMPDIR", "TZ", "GOCOVERDIR"}

// programs builds the commands of programs that run in containers in a cluster.
type programs struct {
	options    Options
	state      *state
	cluster    *cluster
	identities *identities
	topology   *manifest.Topology
	addresses  *addresses
	ports      map[string]ports // of Deployments, by name
}

// check returns an error that names each program without a binary. With --build, Deployments may lack theirs.
func (p *programs) check() error {
	if p.options.Build != "" {
		return checkPrograms(p.options.Bin, p.topology.Functions)
	}
	return checkPrograms(p.options.Bin, slices.Concat(p.topology.Functions, p.topology.Deployments))
}

func checkPrograms(bin string, programs []manifest.Program) error {
	var errs []error
	for _, program := range programs {
		path := filepath.Join(bin, program.Binary)
		if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			errs = append(errs, fmt.Errorf("find the binary of %s %s: %s is no program; build it, or correct --bin", program.Kind.Kind, program.Name, path))
		}
		if _, err := program.Directories(); err != nil {
			errs = append(errs, err)
		}
		if _, err := program.Projected(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// current returns the program as the API server has it now. It may differ from the manifest, because a SinkBinding of Knative adds to it.
func (p *programs) current(ctx context.Context, program manifest.Program) (manifest.Program, error) {
	r, err := p.cluster.kind(program.Kind)
	if err != nil {
		return manifest.Program{}, err
	}
	object, err := p.cluster.client(r.GroupVersionResource, program.Namespace).Get(ctx, program.Name, metav1.GetOptions{})
	if err != nil {
		return manifest.Program{}, fmt.Errorf("read %s %s/%s: %w", program.Kind.Kind, program.Namespace, program.Name, err)
	}
	return manifest.ReadProgram(object)
}

// command resolves environment and credentials at each start, as a kubelet does for each container.
func (p *programs) command(ctx context.Context, program manifest.Program, port int) (process.Command, error) {
	program, err := p.current(ctx, program)
	if err != nil {
		return process.Command{}, err
	}
	env, args, err := program.Environment(ctx, p.cluster)
	if err != nil {
		return process.Command{}, err
	}
	kubeconfig, err := p.identities.kubeconfig(ctx, program.Namespace, program.ServiceAccount)
	if err != nil {
		return process.Command{}, err
	}
	if err := p.project(ctx, program); err != nil {
		return process.Command{}, err
	}
	if err := p.relocate(program, env, args); err != nil {
		return process.Command{}, err
	}
	p.ports[program.Name].in(env)
	p.addresses.in(env)
	env["PORT"], env["KUBECONFIG"] = strconv.Itoa(port), kubeconfig
	// In a cluster every address of a pod is served, behind network policies. This machine has none.
	if env["SERVER_HOST"] == "" {
		env["SERVER_HOST"] = "127.0.0.1"
	}
	if program.Kind.Kind == "Service" {
		env["K_SERVICE"], env["K_CONFIGURATION"], env["K_REVISION"] = program.Name, program.Name, revision(program.Name)
	}
	sink, err := p.addresses.sinkOf(program, p.topology.Bindings)
	if err != nil {
		return process.Command{}, err
	}
	if sink != nil && !p.options.Unbound {
		env["K_SINK"] = sink.String()
	}
	dir := p.state.path("work", program.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return process.Command{}, fmt.Errorf("create the working directory: %w", err)
	}
	return process.Command{Path: filepath.Join(p.options.Bin, program.Binary), Args: args, Env: flatten(env), Dir: dir}, nil
}

// project writes the present content of Secrets into volumes.
func (p *programs) project(ctx context.Context, program manifest.Program) error {
	projected, err := program.Projected()
	if err != nil {
		return err
	}
	for volume, secrets := range projected {
		dir := p.state.path("volumes", program.Name, volume)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create the directory of volume %s: %w", volume, err)
		}
		files := map[string]string{}
		for _, secret := range secrets {
			content, err := p.cluster.Secret(ctx, program.Namespace, secret.Name)
			if errors.Is(err, manifest.ErrAbsent) && ptr.Deref(secret.Optional, false) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read Secret %s/%s of volume %s: %w", program.Namespace, secret.Name, volume, err)
			}
			maps.Copy(files, content)
		}
		if err := replaceFiles(dir, files); err != nil {
			return err
		}
	}
	return nil
}

// replaceFiles makes these the files of a directory.
func replaceFiles(dir string, files map[string]string) error {
	old, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	var errs []error
	for _, file := range old {
		if _, stays := files[file.Name()]; !stays {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, file.Name())))
		}
	}
	for name, content := range files {
		errs = append(errs, writeFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return errors.Join(errs...)
}

// tokenMount is where a SinkBinding of Knative mounts the token for its sink.
const tokenMount = "/oidc"

// relocate replaces the paths of volumes in arguments and environment by directories of the state.
func (p *programs) relocate(program manifest.Program, env map[string]string, args []string) error {
	directories, err := program.Directories()
	if err != nil {
		return err
	}
	if directories[tokenMount] != "" {
		env["OIDC_TOKEN_FILE"] = tokenMount + "/token"
	}
	for mount, volume := range directories {
		dir := p.state.path("volumes", program.Name, volume)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create the directory of volume %s: %w", volume, err)
		}
		for name, value := range env {
			env[name] = manifest.Relocate(value, mount, dir)
		}
		for i, arg := range args {
			args[i] = manifest.Relocate(arg, mount, dir)
		}
	}
	return nil
}

func revision(name string) string { return name + "-00001" }

// flatten adds the inherited variables that are not set, and returns all of them in order.
func flatten(env map[string]string) []string {
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			if _, set := env[name]; !set {
				env[name] = value
			}
		}
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// extra returns the programs of --process. gateway is the URL of the gateway, or empty.
func (p *programs) extra(e extraProcess, gateway string) process.Spec {
	notes, ready := p.state.path("notes", e.name), p.state.path("notes", e.name+".ready")
	return process.Spec{
		Name: e.name, Kind: "process", Grace: componentGrace,
		Ready: func(ctx context.Context) error {
			if !slices.Contains(p.options.Await, e.name) {
				return nil
			}
			return poll(ctx, func() bool {
				_, err := os.Stat(ready)
				return err == nil
			})
		},
		Command: func(context.Context) (process.Command, error) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(notes), 0o700), os.RemoveAll(notes), os.RemoveAll(ready)); err != nil {
				return process.Command{}, fmt.Errorf("prepare the files of %s: %w", e.name, err)
			}
			env := append(os.Environ(), "KUBECONFIG="+p.state.path("kubeconfig"), "NOTES="+notes, "READY="+ready, "GATEWAY_URL="+gateway)
			return process.Command{Path: "/bin/sh", Args: []string{"-c", "exec " + e.command}, Env: env, Dir: p.options.Root}, nil
		},
	}
}

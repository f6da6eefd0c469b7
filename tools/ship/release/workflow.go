// Package release runs the commands of the release workflow without publishing: TestRelease gives them a registry of its own.
package release

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// job is a job of a workflow of GitHub.
type job struct {
	Env   map[string]string
	Steps []step
}

// step is a step of a job: a command to run, or an action to use.
type step struct {
	Name, ID, Run, Uses string
	Env                 map[string]string
	With                map[string]any
}

// readJob returns a job of the workflow in a file.
func readJob(path, name string) (job, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return job{}, err
	}
	var workflow struct{ Jobs map[string]job }
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		return job{}, fmt.Errorf("read %s: %w", path, err)
	}
	found, ok := workflow.Jobs[name]
	if !ok {
		return job{}, fmt.Errorf("%s has no job %s", path, name)
	}
	return found, nil
}

var expression = regexp.MustCompile(`\$\{\{\s*([\w.]+)\s*\}\}`)

// resolve replaces the expressions in a text, ${{ name }}, by their values. An expression without a value is an error.
func resolve(text string, values map[string]string) (string, error) {
	var missing []string
	resolved := expression.ReplaceAllStringFunc(text, func(found string) string {
		name := expression.FindStringSubmatch(found)[1]
		value, ok := values[name]
		if !ok {
			missing = append(missing, name)
		}
		return value
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("no value for %s", strings.Join(missing, ", "))
	}
	return resolved, nil
}

// environment returns the variables of a step, as NAME=value: those of its job and its own.
func (j job) environment(s step, values map[string]string) ([]string, error) {
	variables := maps.Clone(j.Env)
	maps.Copy(variables, s.Env)
	var all []string
	for name, text := range variables {
		value, err := resolve(text, values)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
		all = append(all, name+"="+value)
	}
	return all, nil
}

// outputs returns the outputs in a file that a step has written as GITHUB_OUTPUT, lines of name=value.
func outputs(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok {
			all[name] = value
		}
	}
	return all
}

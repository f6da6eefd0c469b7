package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Load reads the configuration. A flag overrides the environment, the environment overrides the
// file, and the file overrides the default. The file is the one that --config or the
// variable CONFIG_FILE names. The first key that is unknown, or whose value
// cannot be used, is an error that names it. --help is flag.ErrHelp, after the
// usage has been written to usage.
func Load(args []string, lookup func(string) (string, bool), usage io.Writer) (*Config, error) {
	c := &Config{}
	keys := c.Keys()
	given, file, err := parseFlags(args, keys, usage)
	if err != nil {
		return nil, err
	}
	if file == "" {
		file, _ = lookup("CONFIG_FILE")
	}
	written, err := readFile(file, keys)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		source, value, set := k.find(given, lookup, written)
		if err := k.from(source, value); err != nil {
			return nil, err
		}
		if set && value != "" && (k.Name == "cache.redis.url" || k.Name == "cache.redis.host") {
			c.Cache.Redis.Used = true
		}
	}
	if c.Database.StateDir == "" {
		c.Database.StateDir = defaultStateDir(lookup)
	}
	return c, nil
}

// find returns the strongest source that has the key, and false where that is the
// default.
func (k Key) find(flags map[string]string, lookup func(string) (string, bool), file map[string]string) (source, value string, set bool) {
	if value, ok := flags[k.Name]; ok {
		return "flag --" + k.Name, value, true
	}
	for _, name := range k.Env {
		if value, ok := lookup(name); ok {
			return "environment variable " + name, value, true
		}
	}
	if value, ok := file[k.Name]; ok {
		return "key " + k.Name, value, true
	}
	return "key " + k.Name, k.Default, false
}

func (k Key) from(source, value string) error {
	if err := k.set(value); err != nil {
		return fmt.Errorf("read configuration: %s: %w", source, err)
	}
	return nil
}

func parseFlags(args []string, keys []Key, usage io.Writer) (given map[string]string, file string, err error) {
	set := flag.NewFlagSet("gateway", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&file, "config", "", "")
	given = map[string]string{}
	for _, k := range keys {
		set.Func(k.Name, k.Help, func(value string) error { given[k.Name] = value; return nil })
	}
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			WriteUsage(usage, keys)
			return nil, "", err
		}
		return nil, "", fmt.Errorf("read configuration: %w", err)
	}
	if set.NArg() > 0 {
		return nil, "", fmt.Errorf("read configuration: argument %q: write settings as --key=value", set.Arg(0))
	}
	return given, file, nil
}

// WriteUsage lists the keys for people.
func WriteUsage(w io.Writer, keys []Key) {
	_, _ = fmt.Fprintln(w, "Usage: gateway [check] [--config=FILE] [--KEY=VALUE ...]\n\ngateway check reads the settings and ends: with an error if the gateway would not start with them.\n\nPrecedence: flag, environment, file, default. Unknown keys are an error.")
	for _, k := range keys {
		_, _ = fmt.Fprintf(w, "\n  --%s %s (%s)\n      %s\n", k.Name, k.Type, strings.Join(k.Env, ", "), k.Help)
		if k.Default != "" {
			_, _ = fmt.Fprintf(w, "      default %s\n", k.Default)
		}
	}
}

// readFile flattens a YAML file into dotted keys. Lists and objects that are a
// key's value are given as JSON.
func readFile(path string, keys []Key) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	values, err := parseFile(content, keys)
	if err != nil {
		return nil, fmt.Errorf("read configuration: file %s: %w", path, err)
	}
	return values, nil
}

func parseFile(content []byte, keys []Key) (map[string]string, error) {
	var tree map[string]any
	if err := yaml.UnmarshalStrict(content, &tree); err != nil {
		return nil, err
	}
	known := make(map[string]Key, len(keys))
	for _, k := range keys {
		known[k.Name] = k
	}
	values := map[string]string{}
	if err := flatten("", tree, known, values); err != nil {
		return nil, err
	}
	return values, nil
}

func flatten(prefix string, tree map[string]any, known map[string]Key, values map[string]string) error {
	for _, name := range sortedKeys(tree) {
		full := prefix + name
		k, isKey := known[full]
		branch, isBranch := tree[name].(map[string]any)
		switch {
		case isKey:
			value, err := scalar(tree[name], k.Type)
			if err != nil {
				return fmt.Errorf("key %s: %w", full, err)
			}
			values[full] = value
		case isBranch:
			if err := flatten(full+".", branch, known, values); err != nil {
				return err
			}
		default:
			return fmt.Errorf("key %s is unknown%s", full, suggest(full, known))
		}
	}
	return nil
}

func sortedKeys(tree map[string]any) []string {
	names := make([]string, 0, len(tree))
	for name := range tree {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// scalar writes a value as a flag would have it.
func scalar(value any, kind string) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	default:
		if kind != "list" && kind != "json" {
			return "", fmt.Errorf("write one value, not a list or an object")
		}
		encoded, err := json.Marshal(v)
		return string(encoded), err
	}
}

// suggest names the known key that looks most like an unknown one.
func suggest(name string, known map[string]Key) string {
	last := name[strings.LastIndexByte(name, '.')+1:]
	var like []string
	for k := range known {
		if strings.EqualFold(k, name) || strings.EqualFold(k[strings.LastIndexByte(k, '.')+1:], last) {
			like = append(like, k)
		}
	}
	if len(like) == 0 {
		return "; gateway --help lists all keys"
	}
	slices.Sort(like)
	return "; did you mean " + strings.Join(like, " or ") + "?"
}

// systemStateDir is where a container or a package keeps state.
const systemStateDir = "/var/lib/vitistack"

// defaultStateDir is the system's directory if it exists and is writable,
// and otherwise one of the user's.
func defaultStateDir(lookup func(string) (string, bool)) string {
	probe, err := os.CreateTemp(systemStateDir, ".probe-*")
	if err == nil {
		_ = probe.Close()
		_ = os.Remove(probe.Name())
		return systemStateDir
	}
	if dir, ok := lookup("XDG_STATE_HOME"); ok && dir != "" {
		return filepath.Join(dir, "vitistack")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return systemStateDir
	}
	return filepath.Join(home, ".local", "state", "vitistack")
}

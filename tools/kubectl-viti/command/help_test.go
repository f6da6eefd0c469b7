package command

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelp checks that each command has a help text, and examples that it accepts.
func TestHelp(t *testing.T) {
	t.Parallel()
	seen := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, next := range cmd.Commands() {
			visit(next)
		}
		if !cmd.HasParent() || cmd.Name() == "help" {
			return
		}
		seen++
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || cmd.Example == "" || cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && cmd.Runnable() && cmd.Name() != "version" {
			t.Errorf("%s needs a short text without a full stop, examples, and completion", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Example) {
			checkExample(t, cmd, line)
		}
	}
	visit(newRoot(Streams{Out: io.Discard, Err: io.Discard}))
	if seen < 15 {
		t.Errorf("only %d commands were found", seen)
	}
}

// TestHelpOfTopics asks for the help of commands as cobra's users do.
func TestHelpOfTopics(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{"help": "Look:", "help why": "kubectl viti why KIND/NAME", "help create cluster": "kubectl viti create cluster NAME", "help why machine/web": "kubectl viti why KIND/NAME"} {
		var out, errs bytes.Buffer
		if code := Run(t.Context(), "dev", strings.Fields(args), Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("kubectl viti %s: %d, %s%s, want %q", args, code, out.String(), errs.String(), want)
		}
	}
}

// checkExample checks that an example calls a command with flags that it has and arguments that it takes.
func checkExample(t *testing.T, cmd *cobra.Command, line string) {
	t.Helper()
	_, call, ok := strings.Cut(line, "kubectl viti ")
	if !ok {
		return
	}
	for _, end := range []string{"#", ">", "&&", ")"} {
		call, _, _ = strings.Cut(call, end)
	}
	root := newRoot(Streams{Out: io.Discard, Err: io.Discard})
	found, args, err := root.Find(strings.Fields(call))
	if err != nil || !strings.HasPrefix(found.CommandPath(), cmd.CommandPath()) {
		t.Errorf("%s: the example %q calls %s: %v", cmd.CommandPath(), strings.TrimSpace(line), found.CommandPath(), err)
		return
	}
	if err := found.ParseFlags(args); err != nil {
		t.Errorf("%s: %q: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
	}
	if err := found.ValidateArgs(found.Flags().Args()); err != nil {
		t.Errorf("%s: %q: %v", cmd.CommandPath(), strings.TrimSpace(line), err)
	}
}

// TestMistakes calls the program as a newcomer may. Each error says what to write.
func TestMistakes(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	for _, tc := range []struct{ args, want string }{
		{"status", "there is no kubeconfig: set KUBECONFIG, or write --kubeconfig FILE"},
		{"frob", `there is no command "frob": kubectl viti --help lists the commands`},
		{"help frob", `there is no command "frob": kubectl viti --help lists the commands`},
		{"help upgrde", "such as upgrade"},
		{"help create frob", `there is no command "create frob": kubectl viti create --help lists the commands`},
		{"bundle", "such as support-bundle"},
		{"upgrde shop", "such as upgrade"},
		{"describe machine/web", "such as why"},
		{"pause", "write kubectl viti pause [KIND/]NAME: kubectl viti pause --help has examples"},
		{"protect", "write kubectl viti protect KIND/NAME"},
		{"pause machine/web", "write kubernetescluster or etcdbackup"},
	} {
		var errs bytes.Buffer
		if code := Run(t.Context(), "dev", strings.Fields(tc.args), Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs}); code == 0 || !strings.Contains(errs.String(), tc.want) {
			t.Errorf("kubectl viti %s: got %d and %q, want %q", tc.args, code, errs.String(), tc.want)
		}
	}
}

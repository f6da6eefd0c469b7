package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// kubectlScript runs kubectl with the administrator's kubeconfig. It says so to a user who has chosen another file, because kubectl
// itself reads KUBECONFIG. Its verbs are the kubeconfig, the directory of the plugins, and this program.
const kubectlScript = `#!/bin/sh
kubeconfig=%s
case " $* " in
*" --kubeconfig"*) ;;
*)
	if [ -n "$KUBECONFIG" ] && ! [ "$KUBECONFIG" -ef "$kubeconfig" ]; then
		echo "$0 uses $kubeconfig, and not KUBECONFIG: for the cluster of that, write --kubeconfig $KUBECONFIG" >&2
	fi
	;;
esac
export KUBECONFIG="$kubeconfig" PATH=%s:"$PATH"
exec %s kubectl "$@"
`

// writeKubectl writes a script that runs this program's kubectl with this API server, and with the plugins that are built beside
// the functions.
func (e *engine) writeKubectl() error {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	script := fmt.Sprintf(kubectlScript, quote(e.state.path("kubeconfig")), quote(e.options.Bin), quote(e.options.Self))
	return writeFile(e.state.path("kubectl"), []byte(script), 0o700)
}

// kubectl returns the command for the user: their own kubectl, or the script.
func (e *engine) kubectl() string {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return "kubectl --kubeconfig " + relative(e.state.path("kubeconfig"))
	}
	return relative(e.state.path("kubectl"))
}

// welcome prints what runs where, and suggests commands.
func (e *engine) welcome(took time.Duration) {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	add("")
	add("Ready in %.1f s: Kubernetes %s with %d functions, which start when they are needed.", took.Seconds(), e.version, len(e.functions))
	add("")
	switch {
	case e.gateway != "" && e.options.Build != "":
		add("  status page  %s (once it is built)", e.gateway)
	case e.gateway != "":
		add("  status page  %s", e.gateway)
	}
	add("  kubeconfig   %s", relative(e.state.path("kubeconfig")))
	add("  logs         %s", relative(e.state.path("logs")))
	add("  engine       %s", e.adminURL)
	for _, line := range e.notes() {
		add("  %s", line)
	}
	add("")
	add("Next:")
	add("  %s get broker,trigger,ksvc,apiserversource,pingsource -n %s", e.kubectl(), platformNamespace)
	if kinds := e.ownKinds(); kinds != "" {
		add("  %s get %s -A", e.kubectl(), kinds)
	}
	add("")
	add("Ctrl-C stops everything. Changes are printed below.")
	add("")
	e.printer.printf("%s", strings.Join(lines, "\n"))
}

// notes returns the notes of the processes of --process.
func (e *engine) notes() (lines []string) {
	for _, extra := range e.options.Extra {
		text, err := os.ReadFile(e.state.path("notes", extra.name))
		if err != nil {
			continue // it has no address
		}
		for line := range strings.Lines(string(text)) {
			what, where, _ := strings.Cut(strings.TrimSpace(line), "\t")
			lines = append(lines, fmt.Sprintf("%-12s %s", what, where))
		}
	}
	return lines
}

// ownKinds returns the repository's namespaced kinds, for kubectl get.
func (e *engine) ownKinds() string {
	var kinds []string
	for _, crd := range e.definitions.own {
		if crd.Spec.Scope == "Namespaced" {
			kinds = append(kinds, crd.Spec.Names.Plural)
		}
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ",")
}

// relative shortens a path below the working directory.
func relative(path string) string {
	short, err := filepath.Rel(".", path)
	if working, absErr := filepath.Abs("."); absErr == nil {
		short, err = filepath.Rel(working, path)
	}
	if err != nil || strings.HasPrefix(short, "..") {
		return path
	}
	return short
}

package command

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func otherCommands(p *program) []*cobra.Command {
	return []*cobra.Command{newCompletion(p), newVersion(p)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// version returns the version of the tag or the commit that the program was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: noArgs, Example: examples("kubectl viti version"),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(p.Out, version())
			return err
		},
	}
}

// completeScript is the program that kubectl runs to complete kubectl viti.
const completeScript = `#!/bin/sh
# kubectl completes "kubectl viti" by this program. Put it into PATH as kubectl_complete-viti.
exec kubectl-viti __complete "$@"
`

func newCompletion(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "completion SHELL", Short: "Write a completion script for bash, zsh or fish, or for kubectl", Args: oneArg("bash, zsh, fish or kubectl"),
		ValidArgs: []string{"bash", "zsh", "fish", "kubectl"},
		Long: `Write a completion script to the standard output. Names of objects complete too.

bash, zsh and fish complete the program kubectl-viti. The script for kubectl completes "kubectl viti" in all of them,
if the completion of kubectl itself is enabled: put it into PATH under the name kubectl_complete-viti.`,
		Example: examples("kubectl viti completion kubectl > ~/bin/kubectl_complete-viti && chmod +x ~/bin/kubectl_complete-viti", "source <(kubectl viti completion bash)", "kubectl viti completion fish > ~/.config/fish/completions/kubectl-viti.fish"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(p.Out, true)
			case "zsh":
				return root.GenZshCompletion(p.Out)
			case "fish":
				return root.GenFishCompletion(p.Out, true)
			case "kubectl":
				_, err := io.WriteString(p.Out, completeScript)
				return err
			default:
				return fmt.Errorf("there is no completion for %q: write bash, zsh, fish or kubectl", args[0])
			}
		},
	}
}

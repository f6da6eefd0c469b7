// Package command has the commands of kubectl viti, one file for each group.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/text"
)

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// program is what the commands share: streams and connection flags.
type program struct {
	Streams
	flags *cluster.Flags
}

// errFailed ends a command whose message has been written already.
var errFailed = errors.New("failed")

// Run runs a command of a version of the program and returns the exit code: 0, 2 if a plan has changes, or 1 after an error, which it has written.
func Run(ctx context.Context, version string, args []string, streams Streams) int {
	root := newRoot(streams)
	root.Version = version
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if errors.Is(err, errChanges) {
		return 2
	}
	if !errors.Is(err, errFailed) {
		_, _ = fmt.Fprintln(streams.Err, "Error:", err)
	}
	return 1
}

const about = `kubectl viti shows what needs attention in the Viti Stack and why, and does what would take several kubectl
commands. It works with your kubeconfig and your rights.`

func newRoot(streams Streams) *cobra.Command {
	p := &program{Streams: streams}
	root := &cobra.Command{
		Use: "kubectl-viti", Short: "Daily work with networks, machines and clusters of the Viti Stack", Long: about,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl viti"},
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkFlagValues(cmd.Flags()) },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.AddGroup(&cobra.Group{ID: "look", Title: "Look:"}, &cobra.Group{ID: "use", Title: "Use a cluster:"}, &cobra.Group{ID: "change", Title: "Change:"})
	p.flags = cluster.NewFlags(root.PersistentFlags())
	hideRareFlags(root)
	for _, add := range []func(*program) []*cobra.Command{lookCommands, useCommands, clusterCommands, changeCommands, moveCommands, otherCommands} {
		root.AddCommand(add(p)...)
	}
	_ = root.RegisterFlagCompletionFunc("namespace", p.completeNamespaces)
	_ = root.RegisterFlagCompletionFunc("context", p.completeContexts(func() string { return "" }))
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		similar := ""
		if found := cmd.SuggestionsFor(args[0]); len(found) > 0 {
			similar = ", such as " + strings.Join(found, " or ")
		}
		return fmt.Errorf("there is no command %q: %s --help lists the commands%s", args[0], cmd.CommandPath(), similar)
	}
	root.RunE, root.ValidArgsFunction, root.SuggestionsMinimumDistance = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, cobra.NoFileCompletions, 2
	refuseUnknownTopics(root)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %s --help lists the flags", err, cmd.CommandPath())
	})
	return root
}

// refuseUnknownTopics has the command help refuse a topic that is no command. It would show the help of what is above it.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		return
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		found, rest, err := root.Find(args)
		switch {
		case err != nil || len(rest) == 0 || !found.HasSubCommands():
			return err
		case found == root:
			return root.Args(root, rest)
		default:
			return fmt.Errorf("there is no command %q: %s --help lists the commands", found.Name()+" "+rest[0], found.CommandPath())
		}
	}
}

// checkFlagValues refuses a flag that is given without a value, as by a script whose variable is empty: the command would act as
// without the flag, for example in another namespace.
func checkFlagValues(flags *pflag.FlagSet) error {
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = fmt.Errorf("--%s is empty: write a value, or leave it out", f.Name)
		}
	})
	return err
}

// hideRareFlags leaves flags out of help texts that only few kubeconfigs need. They work all the same.
func hideRareFlags(root *cobra.Command) {
	for _, name := range []string{
		"as", "as-group", "as-uid", "as-user-extra", "certificate-authority", "client-certificate", "client-key", "cluster", "disable-compression", "insecure-skip-tls-verify",
		"password", "proxy-url", "request-timeout", "server", "tls-server-name", "token", "user", "username",
	} {
		if f := root.PersistentFlags().Lookup(name); f != nil {
			f.Hidden = true
		}
	}
}

// connect returns a connection to the management cluster.
func (p *program) connect() (*cluster.Connection, error) { return p.flags.Connect() }

// note writes a hint beside the output of a command, which stays parsable.
func (p *program) note(message string) {
	if message != "" {
		_, _ = fmt.Fprintln(p.Err, "Note:", message)
	}
}

// addOutput adds the flag -o to a command.
func addOutput(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "", "json, yaml or name. Default: text for people")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(text.Formats, cobra.ShellCompDirectiveNoFileComp))
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *format != "" && !slices.Contains(text.Formats, *format) {
			return fmt.Errorf("-o %s is not a format: write %s, or leave -o out", *format, strings.Join(text.Formats, ", "))
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// examples indents the lines of the examples of a command.
func examples(lines ...string) string { return "  " + strings.Join(lines, "\n  ") }

// oneArg returns a check for one argument whose error says what to write.
func oneArg(usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("write %s %s", cmd.CommandPath(), usage)
		}
		return nil
	}
}

// noArgs refuses arguments with a message that says what to write.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument %q: %s --help lists the flags", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

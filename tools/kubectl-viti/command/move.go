package command

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/vitistack/stack/tools/kubectl-viti/move"
)

func moveCommands(p *program) []*cobra.Command { return []*cobra.Command{newMove(p), newAdopt(p)} }

func newMove(p *program) *cobra.Command {
	kubeconfig, toContext, all, dryRun, timeout := "", "", false, false, 10*time.Minute
	cmd := &cobra.Command{
		Use: "move", GroupID: "change", Short: "Move objects to another management cluster", Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Long: `Move the objects of a namespace, with the Secrets of its clusters and the Leases of its addresses, to another
management cluster with the same release of the stack. Machines keep running and keep their addresses: the functions
there adopt what exists. The objects here are paused first, and are removed when those there are Ready. After an
interruption, run the same command again.`,
		Example: examples("kubectl viti move --to-context other -n datacenter-01 --dry-run", "kubectl viti move --to-context other --all-namespaces"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kubeconfig == "" && toContext == "" {
				return fmt.Errorf("write --to-context NAME, the context of the other management cluster in your kubeconfig, or --to-kubeconfig FILE")
			}
			from, err := p.connect()
			if err != nil {
				return err
			}
			to, err := p.flags.ConnectTo(kubeconfig, toContext)
			if err != nil {
				return err
			}
			if from.Config.Host == to.Config.Host {
				return fmt.Errorf("both are the management cluster at %s: write another --to-context", to.Config.Host)
			}
			m := &move.Mover{From: from, To: to, Namespace: from.Namespace, Timeout: timeout, Report: func(format string, args ...any) {
				_, _ = fmt.Fprintf(p.Out, format+".\n", args...)
			}}
			if all {
				m.Namespace = ""
			}
			rows, err := m.Plan(cmd.Context())
			if err != nil {
				return err
			}
			if err := p.printRows(rows); err != nil {
				return err
			}
			if dryRun {
				return decisionOf(rows)
			}
			return m.Move(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&toContext, "to-context", "", "context of the other management cluster")
	f.StringVar(&kubeconfig, "to-kubeconfig", "", "kubeconfig of the other management cluster. Default: the present one")
	f.BoolVarP(&all, "all-namespaces", "A", false, "move the objects of all namespaces")
	f.BoolVar(&dryRun, "dry-run", false, "show what would move, what differs and what needs a decision, and change nothing")
	f.DurationVar(&timeout, "timeout", timeout, "how long the functions there may take to adopt what exists")
	return cmd
}

// printRows prints the plan of a move as a table.
func (p *program) printRows(rows []move.Row) error {
	table := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "KIND\tNAMESPACE\tNAME\tACTION\tNOTE")
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.Kind, r.Namespace, r.Name, r.Action, r.Note)
	}
	return table.Flush()
}

// decisionOf returns move.ErrDecision if a row needs a decision.
func decisionOf(rows []move.Row) error {
	for _, r := range rows {
		if r.Action == move.Decision {
			return move.ErrDecision
		}
	}
	return nil
}

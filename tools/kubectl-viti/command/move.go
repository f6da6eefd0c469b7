package command

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/move"
)

func moveCommands(p *program) []*cobra.Command { return []*cobra.Command{newMove(p), newAdopt(p)} }

// moving is the command move.
type moving struct {
	*program
	kubeconfig, context string
	all, dryRun         bool
	timeout             time.Duration
}

func newMove(p *program) *cobra.Command {
	m := &moving{program: p}
	cmd := &cobra.Command{
		Use: "move", GroupID: "change", Short: "Move objects to another management cluster", Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Long: `Move the objects of a namespace, with the Secrets of its clusters and the Leases of its addresses, to another
management cluster with the same release of the stack. Machines keep running and keep their addresses: the functions
there adopt what exists. The objects here are paused first, and are removed when those there are Ready. After an
interruption, run the same command again.`,
		Example: examples("kubectl viti move --to-context other -n datacenter-01 --dry-run", "kubectl viti move --to-context other --all-namespaces"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return m.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&m.context, "to-context", "", "context of the other management cluster")
	_ = cmd.RegisterFlagCompletionFunc("to-context", p.completeContexts(func() string { return m.kubeconfig }))
	f.StringVar(&m.kubeconfig, "to-kubeconfig", "", "kubeconfig of the other management cluster. Default: the present one")
	f.BoolVarP(&m.all, "all-namespaces", "A", false, "move the objects of all namespaces")
	f.BoolVar(&m.dryRun, "dry-run", false, "show what would move, what differs and what needs a decision, and change nothing")
	f.DurationVar(&m.timeout, "timeout", 10*time.Minute, "how long the functions there may take to adopt what exists")
	return cmd
}

// run moves the objects, or prints what would move.
func (m *moving) run(ctx context.Context) error {
	mover, err := m.mover()
	if err != nil {
		return err
	}
	rows, err := mover.Plan(ctx)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return m.reportNone(ctx, mover.From, mover.Namespace, "move")
	}
	if err := m.printRows(rows); err != nil {
		return err
	}
	if m.dryRun {
		return decisionOf(rows)
	}
	return mover.Move(ctx)
}

// reportNone says that a namespace, or all if it is empty, have nothing to do something with. It returns an error for one that does not exist.
func (p *program) reportNone(ctx context.Context, c *cluster.Connection, namespace, do string) error {
	if err := checkNamespace(ctx, c, cluster.Objects{}, namespace); err != nil {
		return err
	}
	where := "in any namespace"
	if namespace != "" {
		where = "in namespace " + namespace
	}
	_, err := fmt.Fprintf(p.Out, "There is nothing to %s %s.\n", do, where)
	return err
}

// mover connects to both management clusters.
func (m *moving) mover() (*move.Mover, error) {
	if m.kubeconfig == "" && m.context == "" {
		return nil, errors.New("write --to-context NAME, the context of the other management cluster in your kubeconfig, or --to-kubeconfig FILE")
	}
	from, err := m.connect()
	if err != nil {
		return nil, err
	}
	to, err := m.flags.ConnectTo(m.kubeconfig, m.context)
	if err != nil {
		return nil, err
	}
	if from.Config.Host == to.Config.Host {
		return nil, fmt.Errorf("both are the management cluster at %s: write another --to-context", to.Config.Host)
	}
	namespace := from.Namespace
	if m.all {
		namespace = ""
	}
	return &move.Mover{From: from, To: to, Namespace: namespace, Timeout: m.timeout, Report: func(format string, args ...any) {
		_, _ = fmt.Fprintf(m.Out, format+".\n", args...)
	}}, nil
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

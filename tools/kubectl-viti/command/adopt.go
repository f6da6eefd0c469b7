package command

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vitistack/stack/tools/kubectl-viti/adopt"
)

func newAdopt(p *program) *cobra.Command {
	all, dryRun, unmarked := false, false, false
	cmd := &cobra.Command{
		Use: "adopt", GroupID: "change", Short: "Have objects adopt what exists outside of them", Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Long: `Have objects adopt the virtual machines, addresses and keys that exist outside of them: after objects were orphaned
or restored with other UIDs, or after a migration from the separate operators. Machines keep running and keep their
addresses. What needs a decision stays as it is.`,
		Example: examples("kubectl viti adopt -n datacenter-01 --dry-run", "kubectl viti adopt --all-namespaces --unmarked"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			connection, err := p.connect()
			if err != nil {
				return err
			}
			a := &adopt.Adopter{Connection: connection, In: connection.Namespace, Unmarked: unmarked}
			if all {
				a.In = ""
			}
			rows, err := a.Plan(cmd.Context())
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return p.reportNone(cmd.Context(), connection, a.In, "adopt")
			}
			if err := p.printAdoptions(rows); err != nil || dryRun {
				return err
			}
			return a.Apply(cmd.Context(), rows)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&all, "all-namespaces", "A", false, "adopt for the objects of all namespaces")
	f.BoolVar(&dryRun, "dry-run", false, "show what would be adopted, what differs and what needs a decision, and change nothing")
	f.BoolVar(&unmarked, "unmarked", false, "adopt also what has the name or the addresses of an object and no mark of any object")
	return cmd
}

// printAdoptions prints what is adopted as a table.
func (p *program) printAdoptions(rows []adopt.Row) error {
	table := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "KIND\tNAMESPACE\tNAME\tEXISTS\tACTION\tNOTE")
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Kind, r.Namespace, r.Name, r.What, r.Action, r.Note)
	}
	return table.Flush()
}

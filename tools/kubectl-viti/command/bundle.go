package command

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/vitistack/stack/tools/kubectl-viti/bundle"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// support is the command support-bundle.
type support struct {
	*program
	all    bool
	file   string
	system string
	tail   int
}

func newSupportBundle(p *program) *cobra.Command {
	s := &support{program: p}
	cmd := &cobra.Command{
		Use: "support-bundle", SuggestFor: []string{"bundle", "logs", "debug"}, GroupID: "look", Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Short: "Write what a maintainer needs to find a cause into a file, without secrets",
		Long: `Write objects, conditions, Kubernetes Events, the functions, and the ends of their logs into an archive.

Secrets have the names of their keys only. User data, machine configurations, kubeconfigs, tokens and passwords are
removed, also from messages and logs, and so are the values of all Secrets that you may read. Look into the file before
you send it: names of objects, addresses and messages of backends stay.`,
		Example: examples("kubectl viti support-bundle -A", "kubectl viti support-bundle -n commerce --file shop.tar.gz", "tar -tzf viti-support-*.tar.gz"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.BoolVarP(&s.all, "all-namespaces", "A", false, "objects of all namespaces")
	f.StringVar(&s.file, "file", "", "file to write, which must not exist. Default: viti-support-TIME.tar.gz")
	f.StringVar(&s.system, "stack-namespace", "vitistack-system", "namespace of the functions")
	f.IntVar(&s.tail, "tail", 2000, "number of lines of each log")
	return cmd
}

func (s *support) run(ctx context.Context) (err error) {
	c, err := s.connect()
	if err != nil {
		return err
	}
	now := time.Now()
	o := bundle.Options{Namespace: c.Namespace, System: s.system, Tail: s.tail, Now: now, Version: version()}
	if s.all {
		o.Namespace = ""
	}
	if err := checkNamespace(ctx, c, cluster.Objects{}, o.Namespace); err != nil {
		return err
	}
	if s.file == "" {
		s.file = "viti-support-" + now.Format("20060102-150405") + ".tar.gz"
	}
	file, err := os.OpenFile(s.file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w: write another name into --file", err)
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			_ = os.Remove(s.file)
		}
	}()
	notes, err := bundle.Write(ctx, file, c, o)
	if err != nil {
		return err
	}
	for _, note := range notes {
		s.note("left out: " + note)
	}
	_, err = fmt.Fprintf(s.Out, "%s is written. Look into it before you send it: tar -xzf %s\n", s.file, s.file)
	return err
}

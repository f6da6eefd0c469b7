package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/text"
)

func lookCommands(p *program) []*cobra.Command {
	return []*cobra.Command{newStatus(p), newWhy(p), newTree(p), newPlan(p), newSupportBundle(p)}
}

// status is the command status: what needs attention.
type status struct {
	*program
	all, watch bool
	output     string
}

// overview is what status prints as JSON or YAML.
type overview struct {
	Counts   []text.Count    `json:"counts"`
	Problems []cause.Problem `json:"problems"`
}

func newStatus(p *program) *cobra.Command {
	s := &status{program: p}
	cmd := &cobra.Command{
		Use: "status", GroupID: "look", Args: noArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Short: "Show what needs attention, why, and whose turn it is",
		Long: `Show what needs attention, why, and whose turn it is: the requester's, the network team's or the platform team's.

Objects with the same cause are one entry, with the objects that wait for them. A wait counts after three minutes.`,
		Example: examples("kubectl viti status                  # in the namespace of the context", "kubectl viti status -A               # in all namespaces",
			"kubectl viti status -A -w            # and again after each change", "kubectl viti status -o name          # the objects that are the causes"),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "look in all namespaces")
	cmd.Flags().BoolVarP(&s.watch, "watch", "w", false, "show it again after each change, until Ctrl-C")
	addOutput(cmd, &s.output)
	return cmd
}

func (s *status) run(ctx context.Context) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	namespace := c.Namespace
	if s.all {
		namespace = ""
	}
	objects, err := c.Load(ctx, namespace, cluster.Kinds...)
	if err != nil {
		return err
	}
	if err := checkNamespace(ctx, c, objects, namespace); err != nil {
		return err
	}
	if len(readable(objects)) == 0 {
		where := "in all namespaces: leave -A out, or ask the platform team to bind the ClusterRole vitistack-view to you in all of them"
		if namespace != "" {
			where = fmt.Sprintf("in namespace %s: select yours with -n, or ask the platform team to bind the ClusterRole vitistack-view to you", namespace)
		}
		return errors.New("you may list no objects of the stack " + where)
	}
	s.note(objects.Note())
	if err := s.show(objects, namespace, c.Now()); err != nil || !s.watch {
		return err
	}
	return c.Follow(ctx, namespace, readable(objects), func(now cluster.Objects) error { return s.show(now, namespace, c.Now()) })
}

// checkNamespace returns an error for a namespace without objects that does not exist. A user who may not read Namespaces gets none.
func checkNamespace(ctx context.Context, c *cluster.Connection, objects cluster.Objects, namespace string) error {
	isHere := func(u unstructured.Unstructured) bool { return u.GetNamespace() == namespace }
	if namespace == "" || slices.ContainsFunc(objects.All, isHere) {
		return nil
	}
	if _, err := c.Get(ctx, namespaceKind, namespace); apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// readable returns the kinds that the user may list.
func readable(o cluster.Objects) []cluster.Kind {
	return slices.DeleteFunc(slices.Clone(cluster.Kinds), func(k cluster.Kind) bool { return slices.Contains(o.Unreadable, k) })
}

// clearScreen moves the cursor of a terminal to the top left and erases the screen.
const clearScreen = "\x1b[H\x1b[2J\x1b[3J"

// show writes the overview of objects at once, so that a terminal does not flicker.
func (s *status) show(objects cluster.Objects, namespace string, now time.Time) error {
	set, err := objects.Set()
	if err != nil {
		return err
	}
	o := overview{Counts: count(set, objects), Problems: set.Attention(now)}
	var b bytes.Buffer
	if s.watch && isTerminal(s.Out) {
		b.WriteString(clearScreen)
	}
	if s.output != "" {
		var refs []cause.Ref
		for _, p := range o.Problems {
			if !slices.Contains(refs, p.Ref) {
				refs = append(refs, p.Ref)
			}
		}
		err = text.Encode(&b, s.output, o, refs...)
	} else {
		err = s.draw(&b, o, namespace, now)
	}
	if err != nil {
		return err
	}
	_, err = s.Out.Write(b.Bytes())
	return err
}

func (s *status) draw(b *bytes.Buffer, o overview, namespace string, now time.Time) error {
	where := "in namespace " + namespace
	if namespace == "" {
		where = "in all namespaces"
	}
	if s.watch {
		where += " at " + now.Format(time.TimeOnly)
	}
	fmt.Fprintf(b, "The Viti Stack %s:\n\n", where)
	if len(o.Counts) == 0 {
		b.WriteString("There are no objects. kubectl viti status -A looks in all namespaces, and kubectl viti create cluster NAME writes a cluster.\n")
		return nil
	}
	if err := text.Counts(b, o.Counts); err != nil {
		return err
	}
	b.WriteString("\n")
	if err := text.Problems(b, o.Problems, now); err != nil {
		return err
	}
	if len(o.Problems) > 0 {
		b.WriteString("\nkubectl viti why KIND/NAME explains one object.\n")
	}
	return nil
}

// count returns how many objects of each kind are Ready. Kinds without a condition are left out.
func count(set *cause.Set, objects cluster.Objects) []text.Count {
	counts := []text.Count{} // a list in JSON, also without objects
	for _, k := range cluster.Kinds {
		if !k.HasConditions() {
			continue
		}
		c := text.Count{Kind: k.Name}
		for i := range objects.All {
			if u := &objects.All[i]; u.GetKind() == k.Name {
				c.Total++
				if o := set.Find(cause.Ref{Kind: k.Name, Namespace: u.GetNamespace(), Name: u.GetName()}); o != nil && o.IsReady() {
					c.Ready++
				}
			}
		}
		if c.Total > 0 {
			counts = append(counts, c)
		}
	}
	return counts
}

// explanation is what why prints as JSON or YAML.
type explanation struct {
	Chain    []cause.Link    `json:"chain"`
	Warnings []cause.Warning `json:"warnings,omitempty"`
}

func newWhy(p *program) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use: "why KIND/NAME", SuggestFor: []string{"explain", "describe"}, GroupID: "look", ValidArgsFunction: p.completeTarget(cluster.Kinds...),
		Short: "Explain why an object is not Ready, down to the remedy",
		Long: `Follow an object that is not Ready to the object that is the cause, and say what to do and whose turn it is.

Conditions besides Ready that need attention follow as "Also".`,
		Example: examples("kubectl viti why machine/web", "kubectl viti why kubernetescluster/shop -n commerce", "kubectl viti why machine/web -o name   # the objects of the chain, the cause last"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.why(cmd.Context(), args, output)
		},
	}
	addOutput(cmd, &output)
	return cmd
}

func (p *program) why(ctx context.Context, args []string, output string) error {
	set, ref, now, err := p.load(ctx, args, nil)
	if err != nil {
		return err
	}
	e := explanation{Chain: set.Explain(ref, now), Warnings: set.Find(ref).Warnings()}
	if k, err := cluster.FindKind(ref.Kind); err == nil && !k.HasConditions() {
		return fmt.Errorf("a %s has no condition: kubectl describe %s %s shows what it allows", k.Name, k.Singular(), ref.Name)
	}
	if output == "" {
		return text.Chain(p.Out, e.Chain, e.Warnings, now)
	}
	var refs []cause.Ref
	for _, l := range e.Chain {
		refs = append(refs, l.Ref)
	}
	return text.Encode(p.Out, output, e, refs...)
}

// load reads what a chain or a tree of an object can contain, in addition kinds of other projects. It also returns the time of the API server.
func (p *program) load(ctx context.Context, args []string, more []cluster.Kind) (set *cause.Set, ref cause.Ref, now time.Time, err error) {
	k, name, err := cluster.ParseTarget(args)
	if err != nil {
		return nil, ref, now, err
	}
	c, err := p.connect()
	if err != nil {
		return nil, ref, now, err
	}
	u, err := c.Get(ctx, k, name)
	if err != nil {
		return nil, ref, now, err
	}
	objects, err := c.Load(ctx, u.GetNamespace(), append(slices.Clone(cluster.Kinds), more...)...)
	if err != nil {
		return nil, ref, now, err
	}
	p.note(objects.Note())
	ref = cause.Ref{Kind: k.Name, Namespace: u.GetNamespace(), Name: name}
	// The object itself may be newer than the list.
	objects.All = append(slices.DeleteFunc(objects.All, func(o cluster.Object) bool {
		return o.GetKind() == ref.Kind && o.GetNamespace() == ref.Namespace && o.GetName() == ref.Name
	}), *u)
	set, err = objects.Set()
	return set, ref, c.Now(), err
}

func newTree(p *program) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use: "tree KIND/NAME", GroupID: "look", ValidArgsFunction: p.completeTarget(cluster.Kinds...),
		Short: "Show everything that belongs to an object, with states",
		Long: `Show everything that belongs to an object: machines, virtual machines, disks, interfaces with their addresses and
reservations, Leases, Secrets (their names only), and the objects that it uses together with others.`,
		Example: examples("kubectl viti tree kubernetescluster/shop", "kubectl viti tree machine/web -o json", "kubectl viti tree machineprovider/kubevirt"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.tree(cmd.Context(), args, output)
		},
	}
	addOutput(cmd, &output)
	return cmd
}

func (p *program) tree(ctx context.Context, args []string, output string) error {
	set, ref, _, err := p.load(ctx, args, cluster.Belongings)
	if err != nil {
		return err
	}
	tree, _ := set.Tree(ref)
	if output == "" {
		return text.Tree(p.Out, tree)
	}
	return text.Encode(p.Out, output, tree, text.Refs(tree)...)
}

package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// completions is the type of cobra's functions that complete arguments.
type completions = cobra.CompletionFunc

// completeTarget completes KIND/NAME: first the kind, and after the slash the names in the namespace.
func (p *program) completeTarget(kinds ...cluster.Kind) completions {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		name, _, hasName := strings.Cut(begun, "/")
		if !hasName {
			var all []string
			for _, k := range kinds {
				all = append(all, k.Singular()+"/")
			}
			return all, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		}
		k, err := cluster.FindKind(name)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, directive := p.names(cmd, k)
		for i := range names {
			names[i] = name + "/" + names[i]
		}
		return names, directive
	}
}

// completeNames completes the names of objects of one kind.
func (p *program) completeNames(k cluster.Kind) completions {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return p.names(cmd, k)
	}
}

var namespaceKind = cluster.Kind{Name: "Namespace", Resource: "namespaces", Version: "v1", ClusterScoped: true}

func (p *program) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.names(cmd, namespaceKind)
}

// completeContexts completes the contexts of a kubeconfig, or of that of the flags if the function returns none.
func (p *program) completeContexts(kubeconfig func() string) completions {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return p.flags.Contexts(kubeconfig()), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTemplates completes the built-in sizes and the names of MachineClasses, each after a prefix.
func (p *program) completeTemplates(prefix string) completions {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		var all []string
		for _, c := range v1alpha1.BuiltInClasses() {
			all = append(all, prefix+c.Name)
		}
		classes, _ := p.names(cmd, cluster.MustFindKind("machineclass")) // without a connection the built-in sizes are left
		for _, name := range classes {
			all = append(all, prefix+name)
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names of the objects of a kind in the namespace of the flags.
func (p *program) names(cmd *cobra.Command, k cluster.Kind) ([]string, cobra.ShellCompDirective) {
	c, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := c.In(k, c.Namespace).List(cmd.Context(), metav1.ListOptions{Limit: 500})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

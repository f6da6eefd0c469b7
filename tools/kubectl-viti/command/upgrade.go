package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/upgrade"
)

func clusterCommands(p *program) []*cobra.Command {
	create := &cobra.Command{
		Use: "create", GroupID: "change", ValidArgsFunction: cobra.NoFileCompletions, Short: "Write a manifest from flags", Long: "Write a manifest from flags, to keep in Git or to apply.",
		Example: examples("kubectl viti create cluster shop > shop.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("kubectl viti create %s is not possible: write kubectl viti create cluster NAME", strings.Join(args, " "))
			}
			return cmd.Help()
		},
	}
	create.AddCommand(newCreateCluster(p))
	return []*cobra.Command{newUpgrade(p), create}
}

// upgrading is the command upgrade.
type upgrading struct {
	*program
	request upgrade.Request
	wait    bool
	timeout time.Duration
	dryRun  bool
}

func newUpgrade(p *program) *cobra.Command {
	u := &upgrading{program: p}
	cmd := &cobra.Command{
		Use: "upgrade CLUSTER", GroupID: "use", Args: oneArg("CLUSTER"), ValidArgsFunction: p.completeNames(clusterKind),
		Short: "Show to which versions a cluster can be upgraded, and upgrade it",
		Long: `Show to which versions a cluster can be upgraded in one step, or upgrade it with --to or --talos.

Nodes are upgraded one after the other, the control planes first. The versions of the control plane and of pools that
have their own are changed too. kubectl viti pause CLUSTER --upgrade stops the upgrade before the next node.`,
		Example: examples("kubectl viti upgrade shop                    # what runs, and what is possible", "kubectl viti upgrade shop --to 1.34 --wait   # Kubernetes, and follow it",
			"kubectl viti upgrade shop --talos "+versions.DefaultTalos, "kubectl viti upgrade shop --to 1.34 --dry-run"),
		RunE: func(cmd *cobra.Command, args []string) error { return u.run(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&u.request.Kubernetes, "to", "", "Kubernetes version: 1.34 for its newest patch release, or a full version such as 1.34.13")
	f.StringVar(&u.request.Talos, "talos", "", "Talos version, for example "+versions.DefaultTalos)
	f.BoolVar(&u.wait, "wait", false, "follow the upgrade until it has finished or needs an action")
	f.DurationVar(&u.timeout, "timeout", 2*time.Hour, "how long --wait follows it")
	f.BoolVar(&u.dryRun, "dry-run", false, "have the API server check the change, and change nothing")
	_ = cmd.RegisterFlagCompletionFunc("to", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := p.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		k, err := getCluster(cmd.Context(), c, args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return versions.Upgrades(upgrade.Running(k)), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// clusterName returns the name of the cluster that an argument names, as NAME or as kubernetescluster/NAME.
func clusterName(argument string) (string, error) {
	k, name, err := cluster.ParseName(clusterKind.Singular(), []string{argument})
	if err == nil && k.Name != clusterKind.Name {
		err = fmt.Errorf("%s is no KubernetesCluster: write the name of one", argument)
	}
	return name, err
}

// getCluster returns a KubernetesCluster of the namespace of the connection.
func getCluster(ctx context.Context, c *cluster.Connection, name string) (*v1alpha1.KubernetesCluster, error) {
	u, err := c.Get(ctx, clusterKind, name)
	if err != nil {
		return nil, err
	}
	return typed(u)
}

func typed(u *unstructured.Unstructured) (*v1alpha1.KubernetesCluster, error) {
	k := &v1alpha1.KubernetesCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, k); err != nil {
		return nil, fmt.Errorf("read KubernetesCluster %s: %w", u.GetName(), err)
	}
	return k, nil
}

func (u *upgrading) run(ctx context.Context, name string) error {
	name, err := clusterName(name)
	if err != nil {
		return err
	}
	c, err := u.connect()
	if err != nil {
		return err
	}
	k, err := getCluster(ctx, c, name)
	if err != nil {
		return err
	}
	if u.request == (upgrade.Request{}) {
		if u.wait || u.dryRun {
			return errors.New("--wait and --dry-run are for an upgrade: write --to VERSION or --talos VERSION too")
		}
		return u.list(k)
	}
	wanted, changes, err := upgrade.Plan(k, u.request)
	if err != nil {
		return err
	}
	if err := u.write(ctx, c, k, wanted, changes); err != nil || !u.wait || u.dryRun {
		return err
	}
	return u.follow(ctx, c, name, wanted)
}

// list writes the running and the possible versions.
func (u *upgrading) list(k *v1alpha1.KubernetesCluster) error {
	running, selection := upgrade.Running(k), u.flags.Selection()
	var b strings.Builder
	if running.Kubernetes == "" {
		fmt.Fprintf(&b, "KubernetesCluster %s does not run yet: kubectl viti why kubernetescluster/%s%s explains what it waits for. Talos %s can run:\n", k.Name, k.Name, selection, running.Talos)
	} else {
		fmt.Fprintf(&b, "KubernetesCluster %s runs Kubernetes %s on Talos %s.\n", k.Name, running.Kubernetes, running.Talos)
	}
	if s := k.Status.Upgrade; s != nil {
		fmt.Fprintf(&b, "An upgrade is under way: %s of the nodes have finished.\n", s.Progress)
	}
	possible := versions.Upgrades(running)
	for _, version := range possible {
		fmt.Fprintf(&b, "  Kubernetes %-8s  kubectl viti upgrade %s --to %s%s\n", version, k.Name, version, selection)
	}
	if len(possible) == 0 {
		fmt.Fprintf(&b, "Talos %s runs no newer Kubernetes. A newer Talos may: kubectl viti upgrade %s --talos VERSION%s\n", running.Talos, k.Name, selection)
	}
	if running.Kubernetes != "" && running.Talos != versions.DefaultTalos && versions.CheckTalosUpgrade(running, versions.Pair{Talos: versions.DefaultTalos, Kubernetes: running.Kubernetes}) == nil {
		fmt.Fprintf(&b, "  Talos %-13s  kubectl viti upgrade %s --talos %s%s\n", versions.DefaultTalos, k.Name, versions.DefaultTalos, selection)
	}
	_, err := u.Out.Write([]byte(b.String()))
	return err
}

// write changes the spec, if its versions differ from the wanted ones.
func (u *upgrading) write(ctx context.Context, c *cluster.Connection, k *v1alpha1.KubernetesCluster, wanted versions.Pair, changes []upgrade.Change) error {
	if len(changes) == 0 {
		_, err := fmt.Fprintf(u.Out, "No change: the spec of KubernetesCluster %s has Kubernetes %s and Talos %s already.\n", k.Name, wanted.Kubernetes, wanted.Talos)
		return err
	}
	patch, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: "kubectl-viti"}
	is, mark := "is", ""
	if u.dryRun {
		options.DryRun, is, mark = []string{metav1.DryRunAll}, "would be", " (dry run)"
	}
	stored, err := c.In(clusterKind, c.Namespace).Patch(ctx, k.Name, types.JSONPatchType, patch, options)
	if err != nil {
		return c.Explain(err, clusterKind, k.Name)
	}
	if err := u.noteOverrides(k, stored); err != nil {
		return err
	}
	running := upgrade.Running(k)
	if running.Kubernetes == "" {
		_, err = fmt.Fprintf(u.Out, "KubernetesCluster %s %s created%s with Kubernetes %s on Talos %s.\n", k.Name, is, mark, wanted.Kubernetes, wanted.Talos)
		return err
	}
	if ready := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		u.note(fmt.Sprintf("the cluster is not Ready (%s): kubectl viti why kubernetescluster/%s", ready.Reason, k.Name+u.flags.Selection()))
	}
	_, err = fmt.Fprintf(u.Out, "KubernetesCluster %s %s upgraded%s from Kubernetes %s on Talos %s to Kubernetes %s on Talos %s.\n", k.Name, is, mark, running.Kubernetes, running.Talos, wanted.Kubernetes, wanted.Talos)
	return err
}

// noteOverrides says which fields of its ClusterTemplate a cluster does not get any more, because it has values of its own now.
func (u *upgrading) noteOverrides(before *v1alpha1.KubernetesCluster, stored *unstructured.Unstructured) error {
	content, isTemplated := template.Applied(before)
	if !isTemplated {
		return nil
	}
	after, err := typed(stored)
	if err != nil {
		return err
	}
	had := template.Overrides(before, content)
	fields := slices.DeleteFunc(template.Overrides(after, content), func(field string) bool { return slices.Contains(had, field) })
	if len(fields) > 0 {
		u.note(fmt.Sprintf("ClusterTemplate %s does not change %s of this cluster any more, because the cluster has a value of its own: write the version into the template to upgrade all of its clusters, "+
			"or remove spec.%s from this cluster to have it follow the template again", content.Name, strings.Join(fields, ", "), strings.Join(fields, ", spec.")))
	}
	return nil
}

// followPause is the time between two looks at the cluster.
const followPause = time.Second

// follow writes the message of the cluster whenever it changes, until the upgrade has finished. An
// end by a reason that needs an action is an error with the remedy, and so are credentials that expire meanwhile. It says once that the API
// server does not answer, which may restart.
func (u *upgrading) follow(ctx context.Context, c *cluster.Connection, name string, wanted versions.Pair) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	last, lastFault, accepted := "", "", time.Now()
	for {
		k, err := getCluster(ctx, c, name)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the upgrade has not finished: kubectl viti why kubernetescluster/%s shows what it waits for, and it goes on without this program", name+u.flags.Selection())
		case apierrors.IsNotFound(err):
			return err
		case cluster.IsRefusal(err) && time.Since(accepted) > cluster.RefusalTimeout:
			return fmt.Errorf("%w. The upgrade goes on without this program", err)
		case err != nil:
			if fault := err.Error(); fault != lastFault {
				lastFault = fault
				u.note(fault)
			}
			if !cluster.IsRefusal(err) {
				accepted = time.Now()
			}
		default:
			accepted, lastFault = time.Now(), ""
			message, done, err := progress(k, wanted)
			if message != last {
				last = message
				if _, err := fmt.Fprintf(u.Out, "%s  %s\n", time.Now().Format(time.TimeOnly), message); err != nil {
					return err
				}
			}
			if done || err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
}

// progress returns what a cluster waits for, whether it runs the wanted versions, and an error if
// it needs an action.
func progress(k *v1alpha1.KubernetesCluster, wanted versions.Pair) (message string, done bool, err error) {
	current := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionVersionsCurrent)
	ready := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionReady)
	if k.Status.ObservedGeneration < k.Generation || ready == nil {
		return "waiting for bootstrap-talos to read the new spec", false, nil
	}
	message = ready.Reason + ": " + ready.Message
	if ready.Status == metav1.ConditionTrue && current != nil && current.Status == metav1.ConditionTrue && k.Status.Version == wanted.Kubernetes {
		return message, true, nil
	}
	if advice := cause.Advise("KubernetesCluster", ready.Reason); ready.Status != metav1.ConditionTrue && advice.Owner != cause.NoAction {
		return message, false, fmt.Errorf("the %s has to act: %s", advice.Owner, advice.Remedy)
	}
	return message, false, nil
}

// detailKind returns the kind that an error of the API server is about.
func detailKind(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return status.Status().Details.Kind
	}
	return ""
}

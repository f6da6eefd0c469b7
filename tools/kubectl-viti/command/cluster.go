package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/manifest"
	"github.com/vitistack/stack/tools/kubectl-viti/upgrade"
)

func clusterCommands(p *program) []*cobra.Command {
	create := &cobra.Command{
		Use: "create", GroupID: "change", Short: "Write a manifest from flags", Long: "Write a manifest from flags, to keep in Git or to apply.",
		Example: examples("kubectl viti create cluster shop > shop.yaml"),
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
	running := upgrade.Running(k)
	if running.Kubernetes == "" {
		_, _, err := upgrade.Plan(k, upgrade.Request{})
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "KubernetesCluster %s runs Kubernetes %s on Talos %s.\n", k.Name, running.Kubernetes, running.Talos)
	if s := k.Status.Upgrade; s != nil {
		fmt.Fprintf(&b, "An upgrade is under way: %s of the nodes have finished.\n", s.Progress)
	}
	possible := versions.Upgrades(running)
	for _, version := range possible {
		fmt.Fprintf(&b, "  Kubernetes %-8s  kubectl viti upgrade %s --to %s\n", version, k.Name, version)
	}
	if len(possible) == 0 {
		fmt.Fprintf(&b, "Talos %s runs no newer Kubernetes. A newer Talos may: kubectl viti upgrade %s --talos VERSION\n", running.Talos, k.Name)
	}
	if running.Talos != versions.DefaultTalos && versions.CheckTalosPath(running, versions.Pair{Talos: versions.DefaultTalos, Kubernetes: running.Kubernetes}) == nil {
		fmt.Fprintf(&b, "  Talos %-13s  kubectl viti upgrade %s --talos %s\n", versions.DefaultTalos, k.Name, versions.DefaultTalos)
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
	says := "is upgraded"
	if u.dryRun {
		options.DryRun, says = []string{metav1.DryRunAll}, "would be upgraded (dry run)"
	}
	if _, err := c.In(clusterKind, c.Namespace).Patch(ctx, k.Name, types.JSONPatchType, patch, options); err != nil {
		return c.Explain(err, clusterKind, k.Name)
	}
	if ready := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		u.note(fmt.Sprintf("the cluster is not Ready (%s): kubectl viti why kubernetescluster/%s", ready.Reason, k.Name))
	}
	running := upgrade.Running(k)
	_, err = fmt.Fprintf(u.Out, "KubernetesCluster %s %s from Kubernetes %s on Talos %s to Kubernetes %s on Talos %s.\n", k.Name, says, running.Kubernetes, running.Talos, wanted.Kubernetes, wanted.Talos)
	return err
}

// followPause is the time between two looks at the cluster.
const followPause = time.Second

// follow writes the message of the cluster whenever it changes, until the upgrade has finished. An
// end by a reason that needs an action is an error with the remedy.
func (u *upgrading) follow(ctx context.Context, c *cluster.Connection, name string, wanted versions.Pair) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	last := ""
	for {
		k, err := getCluster(ctx, c, name)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the upgrade has not finished: kubectl viti why kubernetescluster/%s shows what it waits for, and it goes on without this program", name)
		case apierrors.IsNotFound(err):
			return err
		case err != nil:
			u.note(err.Error()) // the API server may restart meanwhile
		default:
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
		return "waits for bootstrap-talos to read the new spec", false, nil
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

// creation is the command create cluster.
type creation struct {
	*program
	manifest.Cluster
	apply, dryRun bool
}

func newCreateCluster(p *program) *cobra.Command {
	c := &creation{program: p}
	cmd := &cobra.Command{
		Use: "cluster NAME", Args: oneArg("NAME"), ValidArgsFunction: cobra.NoFileCompletions,
		Short: "Write the manifest of a cluster",
		Long: `Write the manifest of a KubernetesCluster from flags to the standard output, to keep in Git, or create it with --apply.

Errors that the API server or a function would report later are reported at once.`,
		Example: examples("kubectl viti create cluster shop --dry-run > shop.yaml", "kubectl viti create cluster shop --control-planes 3 --workers workers=3 --workers gpu=1:large --environment prod --apply",
			"kubectl viti create cluster lab --control-planes 1 --workers workers=1:small --network lab-network"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Name = args[0]
			return c.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Version, "version", newestMinor(), "Kubernetes version")
	f.StringVar(&c.Talos, "talos", "", "Talos version. Default: the one of the installation")
	f.IntVar(&c.ControlPlanes, "control-planes", 3, "number of control planes: 1, 3, 5 or 7")
	f.StringVar(&c.ControlPlaneTemplate, "control-plane-template", "", "size of the control planes: small, medium, large or a MachineClass. Default: large")
	f.StringArrayVar(&c.Workers, "workers", []string{"workers=2"}, "pool of workers, as NAME=REPLICAS or NAME=REPLICAS:TEMPLATE; write the flag once for each pool")
	f.StringVar(&c.Network, "network", "", "NetworkNamespace of the machines. Default: the only one of the namespace")
	f.StringVar(&c.Provider, "provider", "", "MachineProvider of the machines. Default: the default MachineProvider")
	f.StringVar(&c.Data.Environment, "environment", "", "environment, for example prod")
	f.StringVar(&c.Data.Project, "project", "", "project that the cluster is accounted to")
	f.StringVar(&c.Data.Datacenter, "datacenter", "", "data centre, for reports")
	f.StringVar(&c.Data.Region, "region", "", "region of the data centre")
	f.StringVar(&c.Data.Zone, "zone", "", "availability zone")
	f.StringVar(&c.Data.Workorder, "workorder", "", "work order in the ticketing system")
	f.BoolVar(&c.Protected, "protected", false, "have the API server refuse the deletion of the cluster")
	f.BoolVar(&c.apply, "apply", false, "create the cluster instead of writing the manifest")
	f.BoolVar(&c.dryRun, "dry-run", false, "have the API server check the manifest too, and create nothing")
	cmd.MarkFlagsMutuallyExclusive("apply", "dry-run")
	_ = cmd.RegisterFlagCompletionFunc("control-plane-template", p.completeTemplates(""))
	_ = cmd.RegisterFlagCompletionFunc("workers", p.completeTemplates("workers=3:"))
	_ = cmd.RegisterFlagCompletionFunc("network", p.completeNames(cluster.MustFindKind("networknamespace")))
	_ = cmd.RegisterFlagCompletionFunc("provider", p.completeNames(cluster.MustFindKind("machineprovider")))
	return cmd
}

// newestMinor returns the newest Kubernetes minor version that the default Talos runs.
func newestMinor() string {
	newest := versions.Newest(versions.DefaultTalos)
	return newest[:strings.LastIndexByte(newest, '.')]
}

func (c *creation) run(ctx context.Context) error {
	connection, err := c.connect()
	if err != nil && (c.apply || c.dryRun) {
		return err
	}
	if err == nil {
		c.Namespace = connection.Namespace
	}
	if c.NeedsClasses() {
		c.readClasses(ctx, connection)
	}
	k, err := c.Object()
	if err != nil {
		return err
	}
	if c.apply || c.dryRun {
		if err := c.create(ctx, connection, k); err != nil {
			return err
		}
	}
	if c.apply {
		_, err := fmt.Fprintf(c.Out, "KubernetesCluster %s is created in namespace %s: kubectl viti why kubernetescluster/%s shows what it waits for.\n", k.Name, k.Namespace, k.Name)
		return err
	}
	content, err := manifest.YAML(k)
	if err != nil {
		return err
	}
	_, err = c.Out.Write(content)
	return err
}

// readClasses reads the MachineClasses, so that the names of templates are checked. connection is nil if there
// is none. Without them any name is accepted, with a note.
func (c *creation) readClasses(ctx context.Context, connection *cluster.Connection) {
	err := errors.New("there is no connection")
	if connection != nil {
		c.Classes, err = listClasses(ctx, connection)
	}
	if err != nil {
		c.AnyClass = true
		c.note(fmt.Sprintf("the MachineClasses cannot be read, so the templates are not checked: %s", err))
	}
}

// listClasses returns all MachineClasses.
func listClasses(ctx context.Context, connection *cluster.Connection) ([]v1alpha1.MachineClass, error) {
	list, err := connection.In(cluster.MustFindKind("machineclass"), "").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	classes := make([]v1alpha1.MachineClass, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &classes[i]); err != nil {
			return nil, fmt.Errorf("read MachineClass %s: %w", list.Items[i].GetName(), err)
		}
	}
	return classes, nil
}

// create sends the cluster to the API server, which creates it unless this is a dry run.
func (c *creation) create(ctx context.Context, connection *cluster.Connection, k *v1alpha1.KubernetesCluster) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(k)
	if err != nil {
		return err
	}
	delete(raw, "status")
	options := metav1.CreateOptions{FieldManager: "kubectl-viti"}
	if c.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = connection.In(clusterKind, k.Namespace).Create(ctx, &unstructured.Unstructured{Object: raw}, options)
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("KubernetesCluster %q exists in namespace %s: choose another name, or change it with kubectl edit or kubectl apply", k.Name, k.Namespace)
	case apierrors.IsNotFound(err) && detailKind(err) == "namespaces":
		return fmt.Errorf("namespace %s does not exist: kubectl create namespace %s creates it, and -n selects another", k.Namespace, k.Namespace)
	case err != nil:
		return connection.Explain(err, clusterKind, k.Name)
	}
	return nil
}

// detailKind returns the kind that an error of the API server is about.
func detailKind(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return status.Status().Details.Kind
	}
	return ""
}

package command

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/manifest"
	"github.com/vitistack/stack/tools/kubectl-viti/text"
)

// creation is the command create cluster.
type creation struct {
	*program
	manifest.Cluster
	apply, dryRun, ask bool
	output             string
}

func newCreateCluster(p *program) *cobra.Command {
	c := &creation{program: p}
	cmd := &cobra.Command{
		Use: "cluster NAME", Args: oneArg("NAME"), ValidArgsFunction: cobra.NoFileCompletions,
		Short: "Write the manifest of a cluster",
		Long: `Write the manifest of a KubernetesCluster to the standard output, to keep in Git, or create it with --apply. Its fields come from
flags. With --ask, the command asks for the flags that are missing.

Mistakes in flags are reported at once. kubectl viti plan -f checks the manifest against networks, hosts and addresses.`,
		Example: examples("kubectl viti create cluster shop --dry-run > shop.yaml", "kubectl viti create cluster shop --ask > shop.yaml", "kubectl viti create cluster shop --control-planes 3 --workers workers=3 --workers gpu=1:large --environment prod --apply",
			"kubectl viti create cluster lab --control-planes 1 --workers workers=1:small --network lab-network"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Name = args[0]
			return c.run(cmd.Context(), cmd.Flags())
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
	f.BoolVar(&c.ask, "ask", false, "ask for what the other flags leave out")
	addOutput(cmd, &c.output)
	f.Lookup("output").Usage = "json, yaml or name. Default: yaml, and with --apply text for people"
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

// questions are the flags that --ask asks for.
var questions = []string{"version", "control-planes", "control-plane-template", "workers", "network", "environment", "project"}

// askForFlags asks for each of the questions that has no flag, until the answer is valid. An empty answer is the default.
func (c *creation) askForFlags(flags *pflag.FlagSet, check func() error) error {
	answers := bufio.NewScanner(c.In)
	for _, name := range questions {
		f := flags.Lookup(name)
		for done := f.Changed; !done; {
			initial := ""
			if f.DefValue != "" {
				initial = " [" + strings.Trim(f.DefValue, "[]") + "]"
			}
			_, _ = fmt.Fprintf(c.Err, "%s%s: ", f.Usage, initial)
			if !answers.Scan() {
				return cmp.Or(answers.Err(), errors.New("the input ended before the last question: write flags instead of --ask, or answer each question"))
			}
			answer := strings.TrimSpace(answers.Text())
			if answer == "" {
				break
			}
			err := setFlag(f, answer)
			if err == nil {
				err = check()
			}
			if done = err == nil; !done {
				_, _ = fmt.Fprintln(c.Err, "Error:", err)
				_ = setFlag(f, strings.Trim(f.DefValue, "[]"))
			}
		}
	}
	return nil
}

// setFlag sets a flag to a value, or a flag that may be repeated to the values that spaces separate.
func setFlag(f *pflag.Flag, value string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(strings.Fields(value))
	}
	return f.Value.Set(value)
}

func (c *creation) run(ctx context.Context, flags *pflag.FlagSet) error {
	connection, err := c.connect()
	if err != nil && (c.apply || c.dryRun) {
		return err
	}
	if err == nil {
		c.Namespace = connection.Namespace
	}
	check := func() error {
		c.readClasses(ctx, connection)
		_, err := c.Object()
		return err
	}
	if err := check(); err != nil {
		return err
	}
	if c.ask {
		if err := c.askForFlags(flags, check); err != nil {
			return err
		}
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
	if c.apply && c.output == "" {
		_, err := fmt.Fprintf(c.Out, "KubernetesCluster %s is created in namespace %s: kubectl viti why kubernetescluster/%s shows what it waits for.\n", k.Name, k.Namespace, k.Name+c.flags.Selection())
		return err
	}
	content, err := manifest.Content(k)
	if err != nil {
		return err
	}
	return text.Encode(c.Out, cmp.Or(c.output, "yaml"), content, cause.Ref{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name})
}

// readClasses reads the MachineClasses once if a template may name one, so that its name is checked. connection is nil if there
// is none. Without them any name is accepted, with a note.
func (c *creation) readClasses(ctx context.Context, connection *cluster.Connection) {
	if isRead := c.Classes != nil || c.AnyClass; isRead || !c.NeedsClasses() {
		return
	}
	err := errors.New("there is no connection")
	if connection != nil {
		c.Classes, err = listClasses(ctx, connection)
	}
	if err != nil {
		c.AnyClass = true
		c.note(fmt.Sprintf("the MachineClasses cannot be read, so the templates are not checked: %s", err))
	}
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

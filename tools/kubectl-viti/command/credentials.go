package command

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/tools/kubectl-viti/clientconfig"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

var clusterKind = cluster.MustFindKind("kubernetescluster")

func useCommands(p *program) []*cobra.Command {
	return []*cobra.Command{
		newCredentials(p, credentials{key: "kubeconfig", client: "kubectl", check: clientconfig.CheckKubeconfig, merge: clientconfig.MergeKubeconfig, variable: "KUBECONFIG", file: filepath.Join(".kube", "config")}),
		newCredentials(p, credentials{key: "talosconfig", client: "talosctl", check: func([]byte) error { return nil }, merge: clientconfig.MergeTalosconfig, variable: "TALOSCONFIG", file: filepath.Join(".talos", "config")}),
	}
}

// credentials is the command kubeconfig, or talosconfig.
type credentials struct {
	*program
	// key is the field of status.secrets and the key of the Secret, and client the program that reads
	// the file.
	key, client string
	// check returns an error for a configuration that reaches into the machine of the user.
	check func([]byte) error
	merge clientconfig.Merger
	// variable names the file of the user, which is file in the home directory without it.
	variable, file string

	intoUsers bool
	path      string
	options   clientconfig.Options
}

func newCredentials(p *program, c credentials) *cobra.Command {
	c.program = p
	cmd := &cobra.Command{
		Use: c.key + " CLUSTER", GroupID: "use", Args: oneArg("CLUSTER"), ValidArgsFunction: p.completeNames(clusterKind),
		Short: fmt.Sprintf("Print the %s of a cluster, or merge it into your own", c.key),
		Long: fmt.Sprintf(`Print the %s of a cluster to the standard output, or merge it into your own file.

A merge keeps everything else in the file, and the current context. The new context is called NAMESPACE-CLUSTER. It is
replaced when you run the command again, for example after a rotation of the authorities.`, c.key),
		Example: examples(fmt.Sprintf("kubectl viti %s shop > shop.yaml && chmod 600 shop.yaml", c.key), fmt.Sprintf("kubectl viti %s shop --merge", c.key),
			fmt.Sprintf("kubectl viti %s shop --merge --name shop --use", c.key)),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), cmd, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.intoUsers, "merge", false, "merge it into your own file instead of printing it")
	f.StringVar(&c.path, "file", "", fmt.Sprintf("file to merge into. Default: the first file of $%s, or ~/%s", c.variable, c.file))
	f.StringVar(&c.options.Name, "name", "", "name of the context in the file. Default: NAMESPACE-CLUSTER")
	f.BoolVar(&c.options.Use, "use", false, "make it the current context")
	f.BoolVar(&c.options.Overwrite, "overwrite", false, "replace a context of the same name that leads elsewhere")
	return cmd
}

func (c *credentials) run(ctx context.Context, cmd *cobra.Command, name string) error {
	if !c.intoUsers {
		for _, flag := range []string{"file", "name", "use", "overwrite"} {
			if cmd.Flags().Changed(flag) {
				return fmt.Errorf("--%s is for --merge: add --merge, or leave it out", flag)
			}
		}
	}
	name, err := clusterName(name)
	if err != nil {
		return err
	}
	connection, err := c.connect()
	if err != nil {
		return err
	}
	content, err := c.read(ctx, connection, name)
	if err != nil {
		return err
	}
	if !c.intoUsers {
		_, err := c.Out.Write(content)
		return err
	}
	path, err := c.target()
	if err != nil {
		return err
	}
	c.options.Name = cmp.Or(c.options.Name, connection.Namespace+"-"+name)
	changed, err := clientconfig.MergeFile(path, c.merge, content, c.options)
	if err != nil {
		return fmt.Errorf("merge into %w", err)
	}
	state := "has"
	if !changed {
		state = "had already"
	}
	_, err = fmt.Fprintf(c.Out, "%s %s the context %s. Use it with: %s --context %s\n", path, state, c.options.Name, c.client, c.options.Name)
	return err
}

// read returns the configuration from the Secret that the status of the cluster names.
func (c *credentials) read(ctx context.Context, connection *cluster.Connection, name string) ([]byte, error) {
	k, err := connection.Get(ctx, clusterKind, name)
	if err != nil {
		return nil, err
	}
	secret, _, _ := unstructured.NestedString(k.Object, "status", "secrets", c.key)
	if secret == "" {
		return nil, c.notYet(k)
	}
	secrets := cluster.Kind{Name: "Secret", Resource: "secrets", Version: "v1"}
	u, err := connection.In(secrets, connection.Namespace).Get(ctx, secret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, c.notYet(k)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w: a user who may read the Secret has full access to the cluster; ask the platform team for the role edit in namespace %s", err, connection.Namespace)
	case err != nil:
		return nil, err
	}
	text, _, _ := unstructured.NestedString(u.Object, "data", c.key)
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(content) == 0 {
		return nil, fmt.Errorf("the Secret %s has no %s: run kubectl viti reconcile kubernetescluster/%s, and try again", secret, c.key, name+c.flags.Selection())
	}
	if err := c.check(content); err != nil {
		return nil, fmt.Errorf("%w: the Secret %s was changed, and not by the stack. Find out by whom, delete the Secret, and run kubectl viti reconcile kubernetescluster/%s to have it written again", err, secret, name+c.flags.Selection())
	}
	return content, nil
}

// notYet says why a cluster has no credentials yet.
func (c *credentials) notYet(k *unstructured.Unstructured) error {
	reason := "no function has reconciled it"
	if o, err := cause.Decode(k); err == nil {
		chain := cause.NewSet(o).Chain(o.Ref)
		if chain[0].Message != "" {
			reason = chain[0].Reason + ": " + chain[0].Message
		}
	}
	return fmt.Errorf("KubernetesCluster %q has no %s yet (%s): kubectl viti why kubernetescluster/%s explains what it waits for", k.GetName(), c.key, reason, k.GetName()+c.flags.Selection())
}

// target returns the file to merge into.
func (c *credentials) target() (string, error) {
	if c.path != "" {
		return c.path, nil
	}
	if paths := filepath.SplitList(os.Getenv(c.variable)); len(paths) > 0 && paths[0] != "" {
		return paths[0], nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("there is no home directory: write --file")
	}
	return filepath.Join(home, c.file), nil
}

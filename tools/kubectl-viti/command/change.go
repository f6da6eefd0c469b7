package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

func changeCommands(p *program) []*cobra.Command {
	return []*cobra.Command{
		newChange(p, reconcileChange()),
		newChange(p, pauseChange("pause", true)), newChange(p, pauseChange("resume", false)),
		newChange(p, protectChange("protect", true)), newChange(p, protectChange("unprotect", false)),
	}
}

// change is a command that writes one field or annotation of an object.
type change struct {
	verb, short, long string
	examples          []string
	// kinds are the kinds with the field. The first is meant by a name without a kind, unless
	// needsKind is set.
	kinds     []string
	needsKind bool
	// flags adds flags, and may be nil.
	flags func(*cobra.Command)
	// path returns the field for a kind, value its new value, and effect what the change causes. name is the object's name as
	// a further command needs it, and changed is false if the field has the value already.
	path   func(kind string) ([]string, error)
	value  func() any
	effect func(o *unstructured.Unstructured, name string, changed bool) string
}

func (c change) find() []cluster.Kind {
	var kinds []cluster.Kind
	for _, name := range c.kinds {
		kinds = append(kinds, cluster.MustFindKind(name))
	}
	return kinds
}

func newChange(p *program, c change) *cobra.Command {
	dryRun := false
	use := "[KIND/]NAME"
	if c.needsKind {
		use = "KIND/NAME"
	}
	cmd := &cobra.Command{
		Use: c.verb + " " + use, GroupID: "change", ValidArgsFunction: p.completeTarget(c.find()...), Short: c.short, Long: c.long, Example: examples(c.examples...),
		RunE: func(cmd *cobra.Command, args []string) error { return p.change(cmd.Context(), c, args, dryRun) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "have the API server check the change, and change nothing")
	if c.flags != nil {
		c.flags(cmd)
	}
	return cmd
}

func (p *program) change(ctx context.Context, c change, args []string, dryRun bool) error {
	standard, usage := c.kinds[0], "[KIND/]NAME"
	if c.needsKind {
		standard, usage = "", "KIND/NAME"
	}
	if len(args) == 0 {
		return fmt.Errorf("write kubectl viti %s %s: kubectl viti %s --help has examples", c.verb, usage, c.verb)
	}
	k, name, err := cluster.ParseName(standard, args)
	if err != nil {
		return err
	}
	if !contains(c.find(), k) {
		return fmt.Errorf("kubectl viti %s has no effect on the kind %s: write %s", c.verb, k.Name, strings.Join(c.kinds, " or "))
	}
	path, err := c.path(k.Singular())
	if err != nil {
		return err
	}
	value := c.value()
	connection, err := p.connect()
	if err != nil {
		return err
	}
	before, err := connection.Get(ctx, k, name)
	if err != nil {
		return err
	}
	now, _, _ := unstructured.NestedFieldNoCopy(before.Object, path...)
	changed := now != value && (now != nil || value != false)
	done := ""
	if changed {
		patch, err := json.Marshal(nest(path, value))
		if err != nil {
			return err
		}
		if before, err = connection.Patch(ctx, k, name, patch, dryRun); err != nil {
			return err
		}
	} else {
		done = "No change: "
	}
	if dryRun {
		done += "(dry run) "
	}
	if v1alpha1.IsPaused(before) {
		p.note(cause.PausedRemedy(cause.Ref{Kind: k.Name, Namespace: before.GetNamespace(), Name: name}))
	}
	_, err = fmt.Fprintf(p.Out, "%s%s %s %s.\n", done, k.Name, name, c.effect(before, name+p.flags.Selection(), changed))
	return err
}

func contains(kinds []cluster.Kind, k cluster.Kind) bool {
	for _, other := range kinds {
		if other.Name == k.Name {
			return true
		}
	}
	return false
}

// nest returns a merge patch that sets one field.
func nest(path []string, value any) map[string]any {
	if len(path) == 1 {
		return map[string]any{path[0]: value}
	}
	return map[string]any{path[0]: nest(path[1:], value)}
}

// field returns the path of a field that all kinds have.
func field(path ...string) func(string) ([]string, error) {
	return func(string) ([]string, error) { return path, nil }
}

func reconcileChange() change {
	return change{
		verb: "reconcile", needsKind: true, short: "Request a reconcile of an object at once",
		long: `Request a reconcile of an object at once, instead of at its next event or check: write another value into the
annotation ` + v1alpha1.AnnotationReconcile + `. It ends the delay after failed attempts, and changes nothing else.`,
		examples: []string{"kubectl viti reconcile machine/web", "kubectl viti reconcile networknamespace/lab -n datacenter-01"},
		kinds:    []string{"kubernetescluster", "machine", "networkconfiguration", "ipallocation", "networknamespace", "etcdbackup", "machineprovider"},
		path:     field("metadata", "annotations", v1alpha1.AnnotationReconcile),
		value:    func() any { return time.Now().UTC().Format(time.RFC3339Nano) },
		effect: func(o *unstructured.Unstructured, name string, _ bool) string {
			return fmt.Sprintf("is reconciled now: kubectl viti why %s/%s shows the result", strings.ToLower(o.GetKind()), name)
		},
	}
}

func pauseChange(verb string, paused bool) change {
	upgrade := false
	c := change{
		verb: verb, kinds: []string{"kubernetescluster", "etcdbackup"},
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&upgrade, "upgrade", false, "only the upgrade of a cluster, with everything else going on")
		},
		path: func(kind string) ([]string, error) {
			switch {
			case kind == "etcdbackup" && upgrade:
				return nil, errors.New("--upgrade is for a KubernetesCluster: leave it out for an EtcdBackup")
			case kind == "etcdbackup":
				return []string{"spec", "suspend"}, nil
			case upgrade:
				return []string{"spec", "upgrade", "paused"}, nil
			default:
				return []string{"spec", "paused"}, nil
			}
		},
		value: func() any { return paused },
	}
	if paused {
		c.short = "Stop changes to a cluster, its upgrade, or its backups"
		c.long = `Stop all changes to a cluster (spec.paused), only its upgrade (spec.upgrade.paused, by --upgrade), or snapshots
(spec.suspend of an EtcdBackup). Nodes keep running. A node that is being upgraded finishes.`
		c.examples = []string{"kubectl viti pause shop", "kubectl viti pause shop --upgrade", "kubectl viti pause etcdbackup/shop-nightly"}
		c.effect = func(o *unstructured.Unstructured, name string, _ bool) string {
			switch {
			case o.GetKind() == "EtcdBackup":
				return "takes no snapshots until kubectl viti resume etcdbackup/" + name
			case upgrade:
				return "upgrades no further nodes until kubectl viti resume --upgrade " + name
			default:
				return "is not changed any more until kubectl viti resume " + name + ": scaling, upgrades and repairs wait"
			}
		}
		return c
	}
	c.short = "Continue what kubectl viti pause stopped"
	c.long = `Continue all changes to a cluster (spec.paused), its upgrade (spec.upgrade.paused, by --upgrade), or snapshots
(spec.suspend of an EtcdBackup). With --upgrade, nodes whose upgrade failed are tried again.`
	c.examples = []string{"kubectl viti resume shop", "kubectl viti resume shop --upgrade", "kubectl viti resume etcdbackup/shop-nightly"}
	c.effect = func(o *unstructured.Unstructured, name string, changed bool) string {
		switch {
		case o.GetKind() == "EtcdBackup":
			return "takes snapshots by its schedule; one that was missed is taken now"
		case upgrade && !changed:
			return "has no paused upgrade. To try failed nodes again, run kubectl viti pause --upgrade " + name + " first"
		case upgrade:
			return "continues its upgrade, and tries failed nodes again"
		default:
			return "is changed to what its spec says"
		}
	}
	return c
}

func protectChange(verb string, protected bool) change {
	c := change{
		verb: verb, needsKind: true, kinds: []string{"machine", "kubernetescluster", "networknamespace"},
		path: field("spec", "protected"), value: func() any { return protected },
	}
	if protected {
		c.short = "Have the API server refuse the deletion of an object"
		c.long = `Set spec.protected of a Machine, KubernetesCluster or NetworkNamespace. The API server then refuses every deletion, also by an
administrator, by the garbage collector and by the deletion of the namespace. A cluster does not remove a protected
Machine when it is scaled down.`
		c.examples = []string{"kubectl viti protect kubernetescluster/shop", "kubectl viti protect machine/web"}
		c.effect = func(o *unstructured.Unstructured, name string, _ bool) string {
			return fmt.Sprintf("is protected: the API server refuses its deletion until kubectl viti unprotect %s/%s", strings.ToLower(o.GetKind()), name)
		}
		return c
	}
	c.short = "Allow the deletion of a protected object again"
	c.long = "Set spec.protected of a Machine, KubernetesCluster or NetworkNamespace to false. A deletion that waits for it continues."
	c.examples = []string{"kubectl viti unprotect machine/web"}
	c.effect = func(o *unstructured.Unstructured, _ string, _ bool) string {
		if o.GetDeletionTimestamp() != nil {
			return "is not protected any more, and its deletion continues"
		}
		return "can be deleted again"
	}
	return c
}

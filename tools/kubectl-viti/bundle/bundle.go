// Package bundle collects what a maintainer of the stack needs to find a cause, without secrets.
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/redact"
	"github.com/vitistack/stack/tools/kubectl-viti/text"
)

// Options say what is collected.
type Options struct {
	// Namespace is the namespace whose objects are collected. Empty means all.
	Namespace string
	// System is the namespace of the stack, whose functions and logs are collected.
	System string
	// Tail is the number of lines of each log.
	Tail int
	// Now is the time of the bundle, and Version the version of this program.
	Now     time.Time
	Version string
}

// others are the kinds besides those of the stack.
var others = append(slices.DeleteFunc(slices.Clone(cluster.Belongings), func(k cluster.Kind) bool { return k.Name == "Secret" }),
	cluster.Kind{Name: "Event", Resource: "events", Version: "v1"})

// system are the kinds of the installation, in the namespace of the stack.
var system = []cluster.Kind{
	{Name: "Service", Resource: "services", Group: "serving.knative.dev", Version: "v1"},
	{Name: "Revision", Resource: "revisions", Group: "serving.knative.dev", Version: "v1"},
	{Name: "Broker", Resource: "brokers", Group: "eventing.knative.dev", Version: "v1"},
	{Name: "Trigger", Resource: "triggers", Group: "eventing.knative.dev", Version: "v1"},
	{Name: "ApiServerSource", Resource: "apiserversources", Group: "sources.knative.dev", Version: "v1"},
	{Name: "PingSource", Resource: "pingsources", Group: "sources.knative.dev", Version: "v1"},
	{Name: "Deployment", Resource: "deployments", Group: "apps", Version: "v1"},
	{Name: "Pod", Resource: "pods", Version: "v1"},
	{Name: "Event", Resource: "events", Version: "v1"},
	{Name: "Lease", Resource: "leases", Group: "coordination.k8s.io", Version: "v1"},
}

var secretKind = cluster.Kind{Name: "Secret", Resource: "secrets", Version: "v1"}

// collector collects files. notes say what could not be read.
type collector struct {
	*cluster.Connection
	Options
	redactor redact.Redactor
	files    map[string][]byte
	notes    []string
}

// Write writes a bundle as a compressed archive, and returns notes about what could not be read. What
// the user may not read is left out and noted. An error is that of the writer, or of an API server
// that does not answer.
func Write(ctx context.Context, w io.Writer, c *cluster.Connection, o Options) ([]string, error) {
	b := &collector{Connection: c, Options: o, files: map[string][]byte{}}
	for _, collect := range []func(context.Context) error{b.secrets, b.objects, b.installation, b.logs} {
		if err := collect(ctx); err != nil {
			return nil, err
		}
	}
	slices.Sort(b.notes)
	b.notes = slices.Compact(b.notes)
	b.files["README.txt"] = []byte(b.readme())
	return b.notes, b.archive(w)
}

func (b *collector) readme() string {
	readme := fmt.Sprintf("Support bundle of the Viti Stack, %s, by kubectl viti %s.\nKubernetes API: %s\nObjects of: %s\n\nSecrets have the names of their keys only. User data, credentials and tokens are removed.\n",
		b.Options.Now.UTC().Format(time.RFC3339), b.Version, b.serverVersion(), cmp.Or(b.Options.Namespace, "all namespaces"))
	for _, note := range b.notes {
		readme += "Left out: " + note + "\n"
	}
	return readme
}

// serverVersion returns the version of the API server, or why it is not known.
func (b *collector) serverVersion() string {
	raw, err := b.Raw(context.Background(), "/version", 1<<16)
	if err != nil {
		return "unknown"
	}
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := yaml.Unmarshal(raw, &version); err != nil {
		return "unknown"
	}
	return version.GitVersion
}

// note records why a kind is left out. Kinds that the cluster does not have need no note.
func (b *collector) note(what string, err error) {
	if err == nil || apierrors.IsNotFound(err) {
		return
	}
	b.notes = append(b.notes, b.redactor.Text(what+": "+err.Error()))
}

// secrets reads the Secrets, so that their values can be removed from everything else, and collects
// their names and keys.
func (b *collector) secrets(ctx context.Context) error {
	namespaces := []string{b.Options.Namespace}
	if b.Options.Namespace != "" && b.Options.Namespace != b.System {
		namespaces = append(namespaces, b.System)
	}
	var all []unstructured.Unstructured
	for _, namespace := range namespaces {
		list, err := b.In(secretKind, namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			b.note("the names of Secrets", err)
			continue
		}
		for i := range list.Items {
			u := &list.Items[i]
			u.SetKind("Secret")
			if u.Object["type"] == "helm.sh/release.v1" { // the whole chart
				continue
			}
			b.redactor.AddSecret(dataOf(u))
			all = append(all, *u)
		}
	}
	return b.add("secrets.yaml", all)
}

func dataOf(u *unstructured.Unstructured) map[string][]byte {
	data := map[string][]byte{}
	encoded, _, _ := unstructured.NestedStringMap(u.Object, "data")
	for key, value := range encoded {
		if decoded, err := base64.StdEncoding.DecodeString(value); err == nil {
			data[key] = decoded
		}
	}
	return data
}

// add adds objects to a file, without secrets. Without objects there is no file.
func (b *collector) add(name string, objects []unstructured.Unstructured) error {
	var file bytes.Buffer
	for i := range objects {
		raw, err := yaml.Marshal(b.redactor.Object(&objects[i]).Object)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		file.WriteString("---\n" + string(raw))
	}
	if file.Len() > 0 {
		b.files[name] = file.Bytes()
	}
	return nil
}

// objects collects the objects of the stack, what belongs to them, and what needs attention.
func (b *collector) objects(ctx context.Context) error {
	loaded, err := b.Load(ctx, b.Options.Namespace, cluster.Kinds...)
	if err != nil {
		return err
	}
	for _, k := range loaded.Unreadable {
		b.notes = append(b.notes, k.Resource+": you may not list them")
	}
	set, err := loaded.Set()
	if err != nil {
		return err
	}
	var status bytes.Buffer
	if err := text.Problems(&status, set.Attention(b.Connection.Now()), b.Connection.Now()); err != nil {
		return err
	}
	b.files["status.txt"] = []byte(b.redactor.Text(status.String()))
	more, err := b.Load(ctx, b.Options.Namespace, others...)
	if err != nil {
		return err
	}
	for _, k := range more.Unreadable {
		b.notes = append(b.notes, k.Resource+": you may not list them")
	}
	return b.addByKind("objects", append(loaded.All, more.All...))
}

// addByKind adds a file for each namespace and kind.
func (b *collector) addByKind(folder string, objects []unstructured.Unstructured) error {
	files := map[string][]unstructured.Unstructured{}
	for _, u := range objects {
		name := path.Join(folder, cmp.Or(u.GetNamespace(), "_cluster"), strings.ToLower(u.GetKind())+".yaml")
		files[name] = append(files[name], u)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := b.add(name, files[name]); err != nil {
			return err
		}
	}
	return nil
}

// installation collects the functions and what delivers events to them.
func (b *collector) installation(ctx context.Context) error {
	for _, k := range system {
		loaded, err := b.Load(ctx, b.System, k)
		if err != nil {
			b.note(k.Resource+" of "+b.System, err)
			continue
		}
		if len(loaded.Unreadable) > 0 {
			b.notes = append(b.notes, k.Resource+" of "+b.System+": you may not list them")
		}
		if err := b.addByKind("installation", loaded.All); err != nil {
			return err
		}
	}
	orphans, err := b.In(cluster.Kind{Resource: "configmaps", Version: "v1"}, b.System).Get(ctx, "orphans", metav1.GetOptions{})
	if err != nil {
		b.note("the ConfigMap orphans", err)
		return nil
	}
	return b.add("installation/"+b.System+"/orphans.yaml", []unstructured.Unstructured{*orphans})
}

// longestLog is the number of bytes of a log.
const longestLog = 8 << 20

// logs collects the last lines of the containers of the stack. Functions that are scaled to zero have
// none.
func (b *collector) logs(ctx context.Context) error {
	pods, err := b.In(cluster.Kind{Resource: "pods", Version: "v1"}, b.System).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.note("logs", err)
		return nil
	}
	for i := range pods.Items {
		containers, _, _ := unstructured.NestedSlice(pods.Items[i].Object, "spec", "containers")
		for _, c := range containers {
			container, _ := c.(map[string]any)
			name, _ := container["name"].(string)
			pod := pods.Items[i].GetName()
			log, err := b.Raw(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/log?container=%s&tailLines=%d", b.System, pod, name, b.Tail), longestLog)
			if err != nil {
				b.notes = append(b.notes, b.redactor.Text(fmt.Sprintf("the log of %s/%s: %v", pod, name, err)))
				continue
			}
			b.files["logs/"+pod+"/"+name+".log"] = []byte(b.redactor.Text(string(log)))
		}
	}
	return nil
}

// archive writes the files, in the order of their names.
func (b *collector) archive(w io.Writer) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		header := &tar.Header{Name: "viti-support/" + name, Mode: 0o600, Size: int64(len(b.files[name])), ModTime: b.Options.Now}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(b.files[name]); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/changes"
	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/stand/feed"
)

// template creates a ClusterTemplate with a spec as YAML. Its name begins with the namespace of the test.
func (s *env) template(name, spec string) *v1alpha1.ClusterTemplate {
	s.Helper()
	ct := &v1alpha1.ClusterTemplate{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &ct.Spec); err != nil {
		s.Fatal(err)
	}
	if err := s.kube.Create(s.Context(), ct); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { s.forgetTemplate(ct.Name) })
	return ct
}

// forgetTemplate deletes a ClusterTemplate with its finalizer.
func (s *env) forgetTemplate(name string) {
	ct := &v1alpha1.ClusterTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = s.kube.Merge(context.Background(), ct, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	_ = s.kube.Delete(context.Background(), &v1alpha1.ClusterTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// changeTemplate replaces the spec of a ClusterTemplate.
func (s *env) changeTemplate(name, spec string) {
	s.Helper()
	err := kube.OnConflict(func() error {
		ct := s.getTemplate(name)
		before := ct.DeepCopy()
		ct.Spec = v1alpha1.ClusterTemplateSpec{}
		if err := yaml.UnmarshalStrict([]byte(spec), &ct.Spec); err != nil {
			return err
		}
		_, err := s.kube.Patch(s.Context(), before, ct)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

func (s *env) getTemplate(name string) *v1alpha1.ClusterTemplate {
	s.Helper()
	ct := &v1alpha1.ClusterTemplate{}
	if err := s.kube.Get(s.Context(), "", name, ct); err != nil {
		s.Fatal(err)
	}
	return ct
}

// templateEvent returns the event of a ClusterTemplate.
func templateEvent(name string) events.Ref {
	return events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterTemplate", Name: name}
}

// writeManifest applies the spec of a cluster as its owner does with server-side apply.
func (s *env) writeManifest(name, spec string) {
	s.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		s.Fatal(err)
	}
	if _, ok := fields["data"]; !ok {
		fields["data"] = map[string]any{}
	}
	kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	err := s.kube.Apply(s.Context(), kc, "owner", map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "KubernetesCluster",
		"metadata": map[string]any{"namespace": s.namespace, "name": name}, "spec": fields,
	})
	if err != nil {
		s.Fatal(err)
	}
}

// complete runs the phase of templates for a cluster. It returns what the report says.
func (s *env) complete(name string) error {
	s.Helper()
	kc := s.get(name)
	c := &cluster{KubernetesCluster: kc, before: kc.DeepCopy()}
	if err := s.function.templates.fillFromTemplate(s.Context(), c); err != nil {
		s.Fatal(err)
	}
	return c.report.template
}

// specOf returns the spec of a cluster as JSON, without data and templateRef.
func (s *env) specOf(name string) string {
	s.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s.get(name).Spec)
	if err != nil {
		s.Fatal(err)
	}
	delete(fields, "data")
	delete(fields, "templateRef")
	raw, err := json.Marshal(fields)
	if err != nil {
		s.Fatal(err)
	}
	return string(raw)
}

// TestTemplateOwnership writes the manifest of a cluster and its ClusterTemplate in turn, and compares the spec
// afterwards with what the API server makes of it and with the preview.
func TestTemplateOwnership(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents, noResync: true})
	const small = `{cluster: {topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: a, replicas: 2}]}}}`
	for name, tc := range map[string]struct {
		because, template, manifest string
		// nextTemplate and nextManifest are what is written after the cluster has got the template. The
		// rollout writes the template, and the phase of the cluster the rest.
		nextTemplate, nextManifest string
		want                       string
		overrides                  []string
	}{
		"whole":   {"the manifest has nothing of its own", small, "{}", "", "", `{"topology":{"controlplane":{"replicas":1},"version":"1.33","workers":[{"name":"a","replicas":2}]}}`, nil},
		"leaf":    {"a field of the manifest takes precedence", small, `{topology: {version: "1.34"}}`, "", "", `{"topology":{"controlplane":{"replicas":1},"version":"1.34","workers":[{"name":"a","replicas":2}]}}`, []string{"topology.version"}},
		"planes":  {"a version of the control plane takes the place of topology.version", small, `{topology: {controlplane: {version: "1.34"}}}`, "", "", `{"topology":{"controlplane":{"replicas":1,"version":"1.34"},"workers":[{"name":"a","replicas":2}]}}`, []string{"topology.version"}},
		"list":    {"pools are taken as a whole", small, `{topology: {workers: [{name: b, replicas: 3}]}}`, "", "", `{"topology":{"controlplane":{"replicas":1},"version":"1.33","workers":[{"name":"b","replicas":3}]}}`, []string{"topology.workers"}},
		"removed": {"a field that leaves the manifest gets the value of the template", small, `{topology: {version: "1.34", workers: []}}`, "", `{topology: {version: "1.34"}}`, `{"topology":{"controlplane":{"replicas":1},"version":"1.34","workers":[{"name":"a","replicas":2}]}}`, []string{"topology.version"}},
		"pinned":  {"it gets the value of the revision that the cluster has, while another rolls out", small, `{topology: {version: "1.34"}}`, "-" + strings.Replace(small, "1.33", "1.35", 1), "{}", `{"topology":{"controlplane":{"replicas":1},"version":"1.33","workers":[{"name":"a","replicas":2}]}}`, nil},
		"change":  {"the rollout writes what the manifest lacks", small, `{topology: {controlplane: {replicas: 3}}}`, `{cluster: {topology: {version: "1.34", controlplane: {replicas: 5}, workers: [{name: a, replicas: 4}]}}}`, "", `{"topology":{"controlplane":{"replicas":3},"version":"1.34","workers":[{"name":"a","replicas":4}]}}`, []string{"topology.controlplane.replicas"}},
		"gone":    {"a field that leaves the template leaves the cluster", small, "{}", `{cluster: {topology: {version: "1.33", controlplane: {replicas: 1}}}}`, "", `{"topology":{"controlplane":{"replicas":1},"version":"1.33"}}`, nil},
		"labels":  {"labels of nodes are taken one by one", strings.Replace(small, "replicas: 1}", "replicas: 1, labels: {a: template, b: template}}", 1), `{topology: {controlplane: {labels: {b: own, c: own}}}}`, "", "", `{"topology":{"controlplane":{"labels":{"a":"template","b":"own","c":"own"},"replicas":1},"version":"1.33","workers":[{"name":"a","replicas":2}]}}`, []string{"topology.controlplane.labels.b"}},
		"addons":  {"an add-on is taken as a whole, beside others", strings.Replace(small, "{cluster: {", "{cluster: {addons: [{name: aa, configMap: a}, {name: bb, configMap: b}], ", 1), `{addons: [{name: bb, url: "https://example.com/b"}, {name: cc, configMap: c}]}`, "", "", `{"addons":[{"name":"bb","url":"https://example.com/b"},{"configMap":"c","name":"cc"},{"configMap":"a","name":"aa"}],"topology":{"controlplane":{"replicas":1},"version":"1.33","workers":[{"name":"a","replicas":2}]}}`, []string{"addons[bb]"}},
		"talos":   {"an option of the template counts although the manifest has others", strings.Replace(small, "{cluster: {", "{cluster: {talos: {configChanges: Reboot}, ", 1), `{talos: {installDisk: /dev/sda}}`, "", "", `{"talos":{"configChanges":"Reboot","installDisk":"/dev/sda"},"topology":{"controlplane":{"replicas":1},"version":"1.33","workers":[{"name":"a","replicas":2}]}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &env{T: t, server: s.server, namespace: s.namespace, config: s.config, kube: s.kube, function: s.function}
			ct := s.template(name, tc.template)
			ref := fmt.Sprintf("{templateRef: {name: %s}, ", ct.Name)
			s.writeManifest(name, ref+strings.TrimPrefix(tc.manifest, "{"))
			s.apply(name, template.ContentOf(ct), true)
			if rollsOut := strings.HasPrefix(tc.nextTemplate, "{"); tc.nextTemplate != "" {
				s.changeTemplate(ct.Name, strings.TrimPrefix(tc.nextTemplate, "-"))
				if ct = s.getTemplate(ct.Name); rollsOut {
					s.apply(name, template.ContentFor(s.get(name), ct), false)
				}
			}
			if tc.nextManifest != "" {
				s.writeManifest(name, ref+strings.TrimPrefix(tc.nextManifest, "{"))
				applied, _ := template.Applied(s.get(name))
				s.apply(name, applied, true)
			}
			if got := s.specOf(name); got != tc.want {
				t.Errorf("%s:\ngot  %s\nwant %s", tc.because, got, tc.want)
			}
			if got := template.Overrides(s.get(name), template.ContentOf(ct)); !slices.Equal(got, tc.overrides) {
				t.Errorf("%s: the overrides are %v, want %v", tc.because, got, tc.overrides)
			}
			version := s.get(name).ResourceVersion
			if err := s.complete(name); err != nil || s.get(name).ResourceVersion != version {
				t.Errorf("a second reconcile writes (%v)", err)
			}
		})
	}
}

// apply gives a cluster a content, by the phase of the cluster or as a rollout does, and compares the result with
// the preview.
func (s *env) apply(name string, content template.Content, byPhase bool) {
	s.Helper()
	before := s.get(name)
	preview, err := template.Preview(before, content)
	if err != nil {
		s.Fatal(err)
	}
	if byPhase {
		err = s.complete(name)
	} else {
		err = s.function.templates.apply(s.Context(), before, content)
	}
	if err != nil {
		s.Fatal(err)
	}
	if got := s.get(name); !equality.Semantic.DeepEqual(got.Spec, preview.Spec) {
		want, _ := json.Marshal(preview.Spec)
		s.Errorf("the preview differs:\ngot     %s\npreview %s", s.specOf(name), want)
	}
}

// TestTemplateFields creates a cluster of a template with every field. The cluster gets all of them.
func TestTemplateFields(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents, noResync: true})
	const machines = `template: small, providerRef: {name: pve}, healthCheck: {enabled: true, unhealthyTimeout: 20m0s, maxUnhealthy: 2}, labels: {a: b}, taints: [{key: k, value: v, effect: NoSchedule}], patches: [p], drainTimeout: 30m0s`
	const cluster = `{
  topology: {
    controlplane: {replicas: 3, version: "1.33", rollout: {type: InPlace}, ` + machines + `},
    workers: [{name: a, replicas: 2, version: "1.33", autoscaling: {enabled: true, minReplicas: 1, maxReplicas: 3}, upgradeConcurrency: 2, rollout: {type: InPlace, maxSurge: 2, maxUnavailable: 1}, ` + machines + `}]},
  controlPlaneEndpoint: {mode: node},
  networking: {podCIDR: 10.1.0.0/16, serviceCIDR: 10.2.0.0/16, dnsDomain: example.local, cni: none},
  addons: [{name: aa, configMap: a}, {name: bb, url: "https://example.com/b.yaml"}],
  talos: {version: 1.13.9, schematic: "` + "%064d" + `", installDisk: /dev/sda, patches: {all: [a], controlPlane: [b], workers: [c]}, configChanges: Reboot}}`
	ct := s.template("every", fmt.Sprintf("{cluster: "+cluster+"}", 1))
	s.writeManifest("shop", fmt.Sprintf("{templateRef: {name: %s}}", ct.Name))
	if err := s.complete("shop"); err != nil {
		t.Fatal(err)
	}
	want, err := yaml.YAMLToJSON(fmt.Appendf(nil, cluster, 1))
	if err != nil {
		t.Fatal(err)
	}
	var got, wanted map[string]any
	if json.Unmarshal([]byte(s.specOf("shop")), &got) != nil || json.Unmarshal(want, &wanted) != nil || !equality.Semantic.DeepEqual(got, wanted) {
		t.Errorf("got  %s\nwant %s", s.specOf("shop"), want)
	}
	for _, e := range changes.Of("ClusterTemplate") {
		if path, ok := strings.CutPrefix(e.Field, "cluster."); ok && path != "topology.version" && !hasPath(wanted, strings.Split(strings.ReplaceAll(path, "[]", ""), ".")) {
			t.Errorf("the template of this test lacks %s", path)
		}
	}
}

// hasPath reports whether an object has a field, in any item of the lists on its path.
func hasPath(o any, path []string) bool {
	switch typed := o.(type) {
	case []any:
		return slices.ContainsFunc(typed, func(item any) bool { return hasPath(item, path) })
	case map[string]any:
		return typed[path[0]] != nil && (len(path) == 1 || hasPath(typed[path[0]], path[1:]))
	}
	return false
}

// TestTemplateRef removes and changes the templateRef of a cluster.
func TestTemplateRef(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents, noResync: true})
	a := s.template("a", `{cluster: {topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: a, replicas: 1}]}}}`)
	b := s.template("b", `{cluster: {topology: {version: "1.34", controlplane: {replicas: 3}}}}`)
	empty := s.template("empty", `{cluster: {}}`)
	ref := func(ct *v1alpha1.ClusterTemplate, rest string) string {
		return fmt.Sprintf("{templateRef: {name: %s}%s}", ct.Name, rest)
	}
	s.writeManifest("shop", ref(a, ""))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(s.complete("shop"))

	s.writeManifest("shop", ref(b, ""))
	must(s.complete("shop"))
	if got, want := s.specOf("shop"), `{"topology":{"controlplane":{"replicas":3},"version":"1.34"}}`; got != want {
		t.Errorf("another template: got %s, want %s", got, want)
	}

	s.writeManifest("shop", ref(empty, ""))
	must(s.complete("shop")) // fields may fall away while templateRef is there
	s.writeManifest("shop", ref(b, ""))
	must(s.complete("shop"))

	s.writeManifest("shop", "{}")
	must(s.complete("shop"))
	kc := s.get("shop")
	if got, want := s.specOf("shop"), `{"topology":{"controlplane":{"replicas":3},"version":"1.34"}}`; got != want {
		t.Errorf("without templateRef the fields stay: got %s, want %s", got, want)
	}
	if _, has := template.Applied(kc); has || len(template.OtherManagers(kc)) != len(kc.ManagedFields) {
		t.Errorf("without templateRef the stack owns fields still: %v", kc.ManagedFields)
	}
	s.writeManifest("shop", `{topology: {version: "1.35"}}`) // a conflict if another manager owned it
	s.writeManifest("shop", ref(a, ""))
	must(s.complete("shop"))
	if got, want := s.specOf("shop"), `{"topology":{"controlplane":{"replicas":1},"version":"1.33","workers":[{"name":"a","replicas":1}]}}`; got != want {
		t.Errorf("a templateRef again: got %s, want %s", got, want)
	}
}

// TestTemplateRejected gives a cluster a template with which the API server rejects it, and deletes a cluster
// before its fields are written.
func TestTemplateRejected(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents, noResync: true})
	const spec = `{cluster: {topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: a, replicas: 1, autoscaling: {enabled: true, maxReplicas: 3}}]}}}`
	ct := s.template("a", spec)
	s.writeManifest("shop", fmt.Sprintf(`{templateRef: {name: %s}}`, ct.Name))
	if err := s.complete("shop"); err != nil {
		t.Fatal(err)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.ScaledWorkers = new(int32(1)) })
	s.changeTemplate(ct.Name, strings.Replace(spec, "name: a, replicas: 1", "name: a, replicas: 2", 1))
	ct = s.getTemplate(ct.Name)
	err := s.function.templates.apply(t.Context(), s.get("shop"), template.ContentOf(ct))
	if err == nil || !strings.Contains(err.Error(), template.ReasonRejected) || !strings.Contains(err.Error(), ct.Name) || !strings.Contains(err.Error(), "replicas of a pool with autoscaling has no effect") {
		t.Errorf("got %v", err)
	}

	wrong := template.Content{Name: ct.Name, Revision: "wrong", Cluster: *ct.Spec.Cluster.DeepCopy()}
	wrong.Cluster.Topology.Version, wrong.Cluster.Topology.Workers[0].Template = "new", "No Name"
	s.writeManifest("follower", fmt.Sprintf(`{templateRef: {name: %s}}`, ct.Name))
	err = s.function.templates.apply(t.Context(), s.get("follower"), wrong)
	if err == nil || !strings.Contains(err.Error(), template.ReasonInvalid) || !strings.Contains(err.Error(), "platform team") || !strings.Contains(err.Error(), "write a Kubernetes version") {
		t.Errorf("a ClusterTemplate with a field that the API server rejects: %v", err)
	}

	s.writeManifest("gone", fmt.Sprintf("{templateRef: {name: %s}}", ct.Name))
	kc := s.get("gone")
	if err := s.kube.Delete(t.Context(), kc.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := s.function.templates.apply(t.Context(), kc, template.ContentOf(ct)); err == nil {
		t.Error("a deleted cluster is written")
	}
	if err := s.kube.Get(t.Context(), s.namespace, "gone", kc); !kube.NotFound(err) {
		t.Errorf("a deleted cluster is created again: %v", err)
	}
}

// TestClusterOfTemplate creates a cluster that only names a ClusterTemplate, before that exists. It changes the
// template and expects the cluster to follow, without losing its workers when a field leaves its manifest.
func TestClusterOfTemplate(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	name := s.namespace + "-standard"
	s.writeManifest("shop", fmt.Sprintf("{templateRef: {name: %s}}", name))
	s.awaitReason("shop", template.ReasonMissing, "ClusterTemplate "+name+" does not exist")
	if machines := s.machines("shop"); len(machines) > 0 {
		t.Errorf("machines %v exist without a template", machines)
	}
	if got := s.get("shop").Status.Conditions; !slices.ContainsFunc(got, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionTopologyValid && c.Status == metav1.ConditionFalse && c.Reason == template.ReasonMissing
	}) {
		t.Errorf("conditions %v", got)
	}
	const spec = `{cluster: {topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: pool, replicas: 1}]}}}`
	s.template("standard", spec)
	s.deliverTemplate(name)
	s.awaitRunning("shop", "cp-0", "pool-0")
	worker := s.machine("shop-pool-0").UID

	s.changeTemplate(name, strings.Replace(spec, "1.33", "1.34", 1))
	s.deliverTemplate(name)
	feed.Until(t, "the cluster is upgraded", func() (bool, string) {
		kc := s.get("shop")
		return strings.HasPrefix(kc.Status.Version, "1.34") && isUpToDate(kc), kc.Status.Version + " " + kc.Status.Message
	})
	feed.Until(t, "the rollout is over", func() (bool, string) {
		status := s.getTemplate(name).Status
		ok := status.CurrentClusters == 1 && len(status.Updating) == 0
		return ok, fmt.Sprintf("%+v", status)
	})

	s.writeManifest("shop", fmt.Sprintf("{templateRef: {name: %s-none}}", name))
	s.awaitReason("shop", template.ReasonMissing)
	if kc := s.get("shop"); kc.Status.Phase != v1alpha1.ClusterRunning || s.machine("shop-pool-0").UID != worker {
		t.Errorf("the cluster is %s, and its worker was replaced: %s", kc.Status.Phase, kc.Status.Message)
	}
	s.writeManifest("shop", fmt.Sprintf("{templateRef: {name: %s}}", name))
	s.awaitRunning("shop", "cp-0", "pool-0")
	if s.machine("shop-pool-0").UID != worker {
		t.Error("the worker was replaced")
	}
}

// deliverTemplate delivers an event of a ClusterTemplate, as often as the Broker would.
func (s *env) deliverTemplate(name string) {
	s.Helper()
	feed.Until(s, "the event of ClusterTemplate "+name+" is delivered", func() (bool, string) {
		_, err := s.function.handle(s.Context(), events.NewReconcileRequest("/test", templateEvent(name), "uid", "1"))
		return !reconcile.Retried(err), fmt.Sprint(err)
	})
}

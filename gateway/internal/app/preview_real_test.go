package app

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	shared "github.com/vitistack/stack/apis/preview"
)

// TestPreviewOfChanges previews changes of objects of a real API server, with the rights of the gateway as shipped.
func TestPreviewOfChanges(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	limited, line := limitedKey(t, "tenant", "read", "elsewhere")
	whole, all := keyLine(t, "platform", "read")
	if err := os.WriteFile(keys, []byte(line+"\n"+all+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startReal(t, "--auth.enabled=true", "--auth.keysFile="+keys)
	machines := schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machines"}
	manifest := func(spec string) string {
		return "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: web, namespace: " + s.namespace + "}\nspec: {" + spec + "}\n"
	}
	class := "apiVersion: vitistack.io/v1alpha1\nkind: MachineClass\nmetadata: {name: " + s.namespace + "-xl}\nspec: {resources: {cpu: {cores: 8, sockets: 2}, memory: {size: 32Gi}}, disks: [{name: root, size: 100Gi}]}\n"
	classes := schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machineclasses"}
	s.create(classes, "", class)
	t.Cleanup(func() {
		_ = s.client.Resource(classes).Delete(context.Background(), s.namespace+"-xl", metav1.DeleteOptions{})
	})
	was := manifest("template: small, protected: true, cloudInit: {userData: '#cloud-config hunter2'}")
	s.create(machines, s.namespace, strings.Replace(was, "{name: web", `{annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"template":"small","protected":true,"cloudInit":{"userData":"#cloud-config"}}}'}, name: web`, 1))
	for name, tc := range map[string]struct {
		reason, body, key string
		status            int
		want              []string
		not               string
	}{
		"Same":    {reason: "nothing would change", body: was, key: whole, want: []string{`"valid":true`, `"changed":false`, `"action":"none"`}},
		"Removed": {reason: "kubectl apply removes what the last manifest had", body: manifest("template: small, cloudInit: {userData: '#cloud-config hunter2'}"), key: whole, want: []string{`"field":"protected"`, `"from":true`, `"outcome":"applied"`}, not: `"to"`},
		"Secret":  {reason: "user data may hold passwords", body: manifest("template: small, protected: true, cloudInit: {userData: '#cloud-config other'}"), key: whole, want: []string{`"outcome":"initial only"`, `"valid":false`, "cloudInit cannot be changed any more"}, not: "hunter2"},
		"Growth":  {reason: "the disk grows", body: manifest("template: medium, protected: true, cloudInit: {userData: '#cloud-config hunter2'}"), key: whole, want: []string{`"field":"template"`, `"from":"small"`, `"to":"medium"`, "the disk root grows"}},
		"Class":   {reason: "the MachineClass exists", body: strings.Replace(manifest("template: "+s.namespace+"-xl"), "name: web", "name: new", 1), key: whole, want: []string{`"valid":true`, `"cpus":16`, `"memoryBytes":34359738368`, `"diskBytes":107374182400`}},
		"Unknown": {reason: "the message lists the MachineClasses", body: strings.Replace(manifest("template: huge"), "name: web", "name: new", 1), key: whole, want: []string{`"valid":false`, `"reason":"TemplateNotFound"`, s.namespace + "-xl"}},
		"Created": {reason: "the manifest creates its MachineClass", body: strings.Replace(manifest("template: other"), "name: web", "name: new", 1) + "---\n" + strings.Replace(class, s.namespace+"-xl", "other", 1), key: whole, want: []string{`"valid":true`, `"cpus":16`}},
		"Pool":    {reason: "a pool names the MachineClass", body: "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: shop, namespace: " + s.namespace + "}\nspec: {data: {}, topology: {version: '1.33', controlplane: {replicas: 1, template: small}, workers: [{name: w, replicas: 2, template: " + s.namespace + "-xl}]}}\n", key: whole, want: []string{`"valid":true`, `"cpus":33`}},
		"NotNew":  {reason: "a MachineClass cannot be changed", body: strings.Replace(class, "cores: 8", "cores: 9", 1), key: whole, want: []string{`"valid":false`, "create another MachineClass and name it in template"}},
		"Limited": {reason: "the key is for another namespace", body: was, key: limited, status: http.StatusForbidden},
		"Whole":   {reason: "a key with namespaces does not see the whole installation", body: "apiVersion: vitistack.io/v1alpha1\nkind: MachineProvider\nmetadata: {name: pve}\nspec: {type: kubevirt}\n", key: limited, status: http.StatusForbidden},
		"NoKey":   {reason: "a preview needs a key", body: was, status: http.StatusUnauthorized},
	} {
		var headers []string
		if tc.key != "" {
			headers = []string{"Authorization", "Bearer " + tc.key}
		}
		eventually(t, "the gateway to answer "+name, func() bool { return s.do(http.MethodGet, "/ready", "").StatusCode == http.StatusOK })
		r := s.do(http.MethodPost, "/api/v1/preview", tc.body, headers...)
		text := string(r.body)
		if want := max(tc.status, http.StatusOK); r.StatusCode != want {
			t.Errorf("%s: %s: %s %s", name, tc.reason, r.Status, text)
		}
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s: %s is missing in %s", name, tc.reason, want, text)
			}
		}
		if tc.not != "" && strings.Contains(text, tc.not) {
			t.Errorf("%s: %s: %s is in %s", name, tc.reason, tc.not, text)
		}
		var p shared.Preview
		if err := json.Unmarshal(r.body, &p); r.StatusCode == http.StatusOK && (err != nil || len(p.Documents) < 1) {
			t.Errorf("%s: %v in %s", name, err, text)
		}
	}
	r := s.do(http.MethodGet, "/api/v1/machine-classes", "", "Authorization", "Bearer "+limited)
	for _, want := range []string{
		`{"name":"small","builtIn":true,"cpus":1,"memoryBytes":2147483648,"disks":[{"name":"root","bytes":21474836480}]}`,
		`{"name":"` + s.namespace + `-xl","builtIn":false,"cpus":16,"memoryBytes":34359738368,"disks":[{"name":"root","bytes":107374182400}]}`,
	} {
		if r.StatusCode != http.StatusOK || !strings.Contains(string(r.body), want) {
			t.Errorf("the sizes lack %s: %s %s", want, r.Status, r.body)
		}
	}
	now, err := s.client.Resource(machines).Namespace(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || now.GetGeneration() != 1 {
		t.Errorf("a preview has changed the object: generation %d, %v", now.GetGeneration(), err)
	}
}

package adopt

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// decideCluster decides whether a KubernetesCluster of the talos-operator continues as it runs: its spec gets the Talos version and
// the endpoint in the Secret of that operator, because bootstrap-talos would choose others. ok is false if it has all that it needs.
func decideCluster(kc, secret *unstructured.Unstructured) (r Row, ok bool) {
	r = Row{Kind: "KubernetesCluster", Namespace: kc.GetNamespace(), Name: kc.GetName(), What: "Secret " + secret.GetName(), Action: Adopts}
	if workers, _, _ := unstructured.NestedFieldNoCopy(kc.Object, "spec", "topology", "workers"); workers != nil {
		if _, isList := workers.([]any); !isList {
			r.Action, r.Note = Decision, "spec.topology.workers has to be a list of pools, each with its name, replicas and template"
			return r, true
		}
	}
	spec := map[string]any{}
	version, _, _ := unstructured.NestedString(kc.Object, "spec", "talos", "version")
	if runs := decode(secret, "talos_version"); version == "" && runs != "" {
		spec["talos"] = map[string]any{"version": runs}
		r.Note = "its nodes run Talos " + runs
	}
	if _, has, _ := unstructured.NestedFieldNoCopy(kc.Object, "spec", "controlPlaneEndpoint"); !has {
		if endpoint := endpointOf(decode(secret, "kube.config")); endpoint != nil {
			spec["controlPlaneEndpoint"] = endpoint
			r.Note += fmt.Sprintf("; its endpoint is %v", endpoint["host"])
		}
	}
	if len(spec) == 0 && !hasOperatorFinalizer(kc) {
		return r, false
	}
	r.Note = strings.TrimPrefix(r.Note+"; the talos-operator made it", "; ")
	r.Patch = annotate(kc, "")
	r.Patch["spec"] = spec
	return r, true
}

// decode returns a value of a Secret, or nothing.
func decode(secret *unstructured.Unstructured, key string) string {
	text, _, _ := unstructured.NestedString(secret.Object, "data", key)
	value, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(value)
}

// endpointOf returns the endpoint to which a kubeconfig leads, as spec.controlPlaneEndpoint, or nil.
func endpointOf(kubeconfig string) map[string]any {
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		return nil
	}
	server, err := url.Parse(config.Host)
	if err != nil || server.Hostname() == "" {
		return nil
	}
	endpoint := map[string]any{"mode": string(v1alpha1.EndpointCustom), "host": server.Hostname()}
	if port, err := strconv.ParseInt(server.Port(), 10, 32); err == nil {
		endpoint["port"] = port
	}
	return endpoint
}

// decideNode decides whether a Machine with the cluster ID of a KubernetesCluster becomes its node. The talos-operator gives Machines other
// labels and names than bootstrap-talos, which finds them by its own labels:
//
//	the KubernetesCluster does not own it     decide
//	its pool is not in the spec               decide
//	it has the labels                         adopted already
//	otherwise                                 adopts
func decideNode(kc, m *unstructured.Unstructured) Row {
	r := Row{Kind: "Machine", Namespace: m.GetNamespace(), Name: m.GetName(), What: "node of KubernetesCluster " + kc.GetName(), Action: Adopts}
	role, pool := m.GetLabels()[v1alpha1.LabelNodeRole], m.GetAnnotations()[v1alpha1.AnnotationNodePool]
	if role == v1alpha1.RoleControlPlane {
		pool = v1alpha1.ControlPlanePool
	}
	template, found := templateOf(kc, role, &pool)
	labels := map[string]any{v1alpha1.LabelClusterName: kc.GetName(), v1alpha1.LabelClusterRole: role, v1alpha1.LabelMachineTemplate: template}
	if role == v1alpha1.RoleWorker {
		labels[v1alpha1.LabelWorkerGroup] = pool
	}
	switch {
	case !metav1.IsControlledBy(m, kc):
		r.Action, r.Note = Decision, "it has the cluster ID, but not the owner: delete its label "+v1alpha1.LabelClusterID+", or make the KubernetesCluster its owner"
	case !found:
		r.Action, r.Note = Decision, fmt.Sprintf("its role is %q and its pool %q, which spec.topology of the KubernetesCluster lacks: add the pool", role, pool)
	case m.GetLabels()[v1alpha1.LabelClusterName] == kc.GetName() && m.GetLabels()[v1alpha1.LabelClusterRole] != "":
		r.Action = Adopted
	default:
		r.Note = "the talos-operator made it for pool " + pool
		r.Patch = annotate(m, "")
		r.Patch["metadata"].(map[string]any)["labels"] = labels
	}
	return r
}

// templateOf returns the template of a pool, and whether the spec has the pool. A worker without a pool is in the only one.
func templateOf(kc *unstructured.Unstructured, role string, pool *string) (string, bool) {
	properties := func(of map[string]any) string {
		if template, _ := of["template"].(string); template != "" {
			return template
		}
		return v1alpha1.DefaultMachineTemplate(role)
	}
	switch role {
	case v1alpha1.RoleControlPlane:
		controlPlane, _, _ := unstructured.NestedMap(kc.Object, "spec", "topology", "controlplane")
		return properties(controlPlane), true
	case v1alpha1.RoleWorker:
		workers, _, _ := unstructured.NestedSlice(kc.Object, "spec", "topology", "workers")
		at := slices.IndexFunc(workers, func(w any) bool { return w.(map[string]any)["name"] == *pool })
		if at < 0 && *pool == "" && len(workers) == 1 {
			at = 0
		}
		if at < 0 {
			return "", false
		}
		worker := workers[at].(map[string]any)
		*pool, _ = worker["name"].(string)
		return properties(worker), true
	default:
		return "", false
	}
}

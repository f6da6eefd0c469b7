package workload_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// api is a cluster with one Ready node. Its functions play kubelets and controllers.
type api struct {
	*testing.T
	*kubernetes.Clientset
	namespace, node string
	// run has the kubelet run a pod that was created on the node.
	run func(pod string)
	// count has the disruption controller update the status of a PodDisruptionBudget.
	count func(budget string)
	// lose has the node's kubelet be silent until its pods are not ready.
	lose func(pods ...string)
}

// answer is the answer to a request: the code, and the body without values that differ between
// clusters.
type answer struct {
	Code int
	Body any
}

var app = map[string]string{"app": "db"}

// pods creates pods on the node.
func (a *api) pods(names ...string) {
	a.Helper()
	for _, name := range names {
		a.pod(pod(name, a.node, app))
		a.run(name)
	}
}

func (a *api) pod(p *corev1.Pod) {
	a.Helper()
	p.Namespace = a.namespace
	if _, err := a.CoreV1().Pods(a.namespace).Create(a.Context(), p, metav1.CreateOptions{}); err != nil {
		a.Fatal(err)
	}
}

// budget creates a PodDisruptionBudget that keeps a number of pods.
func (a *api) budget(name string, least int32, edit ...func(*policyv1.PodDisruptionBudget)) {
	a.Helper()
	stay := intstr.FromInt32(least)
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &stay, Selector: &metav1.LabelSelector{MatchLabels: app}},
	}
	for _, e := range edit {
		e(b)
	}
	if _, err := a.PolicyV1().PodDisruptionBudgets(a.namespace).Create(a.Context(), b, metav1.CreateOptions{}); err != nil {
		a.Fatal(err)
	}
	a.count(name)
}

// send sends a raw request, so that the answer is not interpreted.
func (a *api) send(method, path, media, body string) answer {
	a.Helper()
	path = strings.NewReplacer("{ns}", a.namespace, "{node}", a.node).Replace(path)
	req := a.CoreV1().RESTClient().Verb(method).RequestURI(path).SetHeader("Accept", "application/json")
	if media != "" {
		req = req.SetHeader("Content-Type", media).Body([]byte(body))
	}
	var got answer
	res := req.Do(a.Context()).StatusCode(&got.Code)
	data, _ := res.Raw() // an error is an answer too
	data = []byte(strings.NewReplacer(a.node, "NODE", a.namespace, "NS").Replace(string(data)))
	if err := json.Unmarshal(data, &got.Body); err != nil {
		a.Fatalf("%s %s: %v: %s", method, path, err, data)
	}
	once(got.Body)
	return got
}

// once removes repeated causes from a Status: the real API server lists a cause once for each
// validation.
func once(body any) {
	fields, _ := body.(map[string]any)
	details, _ := fields["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	if len(causes) == 0 {
		return
	}
	var different []any
	for _, c := range causes {
		if !slices.ContainsFunc(different, func(d any) bool { return cmp.Equal(c, d) }) {
			different = append(different, c)
		}
	}
	details["causes"] = different
}

func (a *api) evict(pod string, preconditions ...string) answer {
	a.Helper()
	options := ""
	if len(preconditions) > 0 {
		options = `,"deleteOptions":{"preconditions":` + preconditions[0] + `}`
	}
	body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}%s}`, pod, a.namespace, options)
	return a.send(http.MethodPost, "/api/v1/namespaces/{ns}/pods/"+pod+"/eviction", "application/json", body)
}

// patchNode returns the parts of the Node that a drain and labels concern.
func (a *api) patchNode(body string) answer {
	a.Helper()
	return a.nodeOf(a.send(http.MethodPatch, "/api/v1/nodes/{node}", string(types.MergePatchType), body))
}

func (a *api) nodeOf(got answer) answer {
	a.Helper()
	if got.Code != http.StatusOK {
		return got
	}
	data, err := json.Marshal(got.Body)
	if err != nil {
		a.Fatal(err)
	}
	var n corev1.Node
	if err := json.Unmarshal(data, &n); err != nil {
		a.Fatal(err)
	}
	labels := map[string]string{}
	for key, value := range n.Labels {
		if strings.HasPrefix(key, "test/") {
			labels[key] = value
		}
	}
	got.Body = map[string]any{"labels": labels, "taints": n.Spec.Taints, "unschedulable": n.Spec.Unschedulable}
	return got
}

// going returns which pods are being deleted.
func (a *api) going(names ...string) answer {
	a.Helper()
	states := map[string]string{}
	for _, name := range names {
		p, err := a.CoreV1().Pods(a.namespace).Get(a.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			states[name] = "gone"
		case err != nil:
			a.Fatal(err)
		case p.DeletionTimestamp != nil:
			states[name] = fmt.Sprintf("ends within %d s", *p.DeletionGracePeriodSeconds)
		default:
			states[name] = "there"
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget {
				states[name] += ", " + c.Reason + ": " + c.Message
			}
		}
	}
	return answer{Body: states}
}

func always(b *policyv1.PodDisruptionBudget) {
	policy := policyv1.AlwaysAllow
	b.Spec.UnhealthyPodEvictionPolicy = &policy
}

// contract is what clients that cordon, drain, label and read nodes require. A check returns the
// answers that it got. codes are the codes of the first answers.
var contract = map[string]struct {
	reason string
	check  func(*api) []answer
	codes  []int
}{
	"Free": {"no budget protects the pod", func(a *api) []answer {
		a.pods("one")
		return []answer{a.evict("one"), a.going("one")}
	}, []int{201}},
	"Budget": {"the budget allows one eviction, but not two", func(a *api) []answer {
		a.pods("one", "two")
		a.budget("web", 1)
		first := a.evict("one")
		a.count("web")
		return []answer{first, a.evict("two"), a.going("one", "two")}
	}, []int{201, 429}},
	"Again": {"a pod that is being deleted may be evicted again", func(a *api) []answer {
		a.pods("one")
		first := a.evict("one")
		a.budget("web", 1)
		return []answer{first, a.evict("one"), a.going("one")}
	}, []int{201, 201}},
	"TwoBudgets": {"the eviction API rejects a pod with two budgets", func(a *api) []answer {
		a.pods("one")
		a.budget("web", 0)
		a.budget("db", 0)
		return []answer{a.evict("one"), a.going("one")}
	}, []int{500}},
	"Unknown": {"no pod has the name", func(a *api) []answer {
		return []answer{a.evict("missing")}
	}, []int{404}},
	"AnotherPod": {"a newer pod has the name", func(a *api) []answer {
		a.pods("one")
		uid, err := a.CoreV1().Pods(a.namespace).Get(a.Context(), "one", metav1.GetOptions{})
		if err != nil {
			a.Fatal(err)
		}
		got := a.evict("one", `{"uid":"another"}`)
		body, _ := got.Body.(map[string]any)
		body["message"] = strings.ReplaceAll(fmt.Sprint(body["message"]), string(uid.UID), "UID")
		return []answer{got, a.going("one"), a.evict("one", fmt.Sprintf(`{"uid":%q}`, uid.UID))}
	}, []int{409, 0, 201}},
	"Pending": {"the eviction of a pending pod is no disruption", func(a *api) []answer {
		p := pod("one", "", app)
		p.Spec.NodeSelector = map[string]string{"no": "where"}
		a.pod(p)
		a.budget("web", 1)
		return []answer{a.evict("one"), a.going("one")}
	}, []int{201}},
	"Finished": {"the eviction of a finished pod is no disruption", func(a *api) []answer {
		a.pods("one")
		p, err := a.CoreV1().Pods(a.namespace).Get(a.Context(), "one", metav1.GetOptions{})
		if err != nil {
			a.Fatal(err)
		}
		p.Status.Phase = corev1.PodSucceeded
		if _, err := a.CoreV1().Pods(a.namespace).UpdateStatus(a.Context(), p, metav1.UpdateOptions{}); err != nil {
			a.Fatal(err)
		}
		a.budget("web", 1)
		return []answer{a.evict("one"), a.going("one")}
	}, []int{201}},
	"Unhealthy": {"an unready pod is protected while too few pods are ready", func(a *api) []answer {
		a.pods("one", "two")
		a.budget("web", 1)
		a.lose("one", "two")
		a.count("web")
		return []answer{a.evict("one"), a.going("one")}
	}, []int{429}},
	"UnhealthyAlways": {"the budget always allows the eviction of unready pods", func(a *api) []answer {
		a.pods("one", "two")
		a.budget("web", 1, always)
		a.lose("one", "two")
		a.count("web")
		return []answer{a.evict("one"), a.going("one")}
	}, []int{201}},
	"Cordon": {"a second cordon changes nothing, and uncordon reverts it", func(a *api) []answer {
		on, off := `{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":false}}`
		return []answer{a.patchNode(on), a.patchNode(on), a.patchNode(off)}
	}, []int{200, 200, 200}},
	"Labels": {"null removes a label, and other labels stay", func(a *api) []answer {
		return []answer{
			a.patchNode(`{"metadata":{"labels":{"test/a":"1","test/b":"2"}}}`),
			a.patchNode(`{"metadata":{"labels":{"test/a":null,"test/c":"3"}}}`),
		}
	}, []int{200, 200}},
	"BadLabels": {"an invalid value, and an invalid key", func(a *api) []answer {
		return []answer{
			a.patchNode(`{"metadata":{"labels":{"test/a":"not a value"}}}`),
			a.patchNode(`{"metadata":{"labels":{"no key":""},"annotations":{"none either":""}}}`),
		}
	}, []int{422, 422}},
	"Taints": {"a merge patch replaces the list", func(a *api) []answer {
		return []answer{
			a.patchNode(`{"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"a","value":"1","effect":"NoExecute"}]}}`),
			a.patchNode(`{"spec":{"taints":[{"key":"b","effect":"PreferNoSchedule"}]}}`),
			a.patchNode(`{"spec":{"taints":null}}`),
		}
	}, []int{200, 200, 200}},
	"BadTaints": {"an unknown effect, no effect, an invalid key and an invalid value", func(a *api) []answer {
		return []answer{
			a.patchNode(`{"spec":{"taints":[{"key":"a","effect":"Never"}]}}`),
			a.patchNode(`{"spec":{"taints":[{"key":"a b"},{"value":"x y","effect":"NoSchedule"}]}}`),
		}
	}, []int{422, 422}},
	"TwiceTainted": {"two taints with one key and effect", func(a *api) []answer {
		return []answer{a.patchNode(`{"spec":{"taints":[{"key":"a","value":"1","effect":"NoSchedule"},{"key":"a","value":"2","effect":"NoSchedule"}]}}`)}
	}, []int{422}},
	"NoNode": {"the Node does not exist", func(a *api) []answer {
		return []answer{a.send(http.MethodPatch, "/api/v1/nodes/missing", string(types.MergePatchType), `{"spec":{"unschedulable":true}}`), a.send(http.MethodDelete, "/api/v1/nodes/missing", "", "")}
	}, []int{404, 404}},
	"Readiness": {"only the subresource changes it", func(a *api) []answer {
		before := a.ready()
		a.patchNode(`{"status":{"conditions":null}}`)
		between := a.ready()
		a.lose()
		return []answer{before, between, a.ready()}
	}, nil},
	"Selected": {"a drain lists the pods of one node", func(a *api) []answer {
		a.pods("one", "two")
		p := pod("waits", "", nil)
		p.Spec.NodeSelector = map[string]string{"no": "where"}
		a.pod(p)
		list, err := a.CoreV1().Pods("").List(a.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + a.node})
		if err != nil {
			a.Fatal(err)
		}
		var names []string
		for _, p := range list.Items {
			if p.Namespace == a.namespace {
				names = append(names, p.Name)
			}
		}
		return []answer{{Body: names}}
	}, nil},
}

// ready returns the condition of the node that clients wait for.
func (a *api) ready() answer {
	a.Helper()
	n, err := a.CoreV1().Nodes().Get(a.Context(), a.node, metav1.GetOptions{})
	if err != nil {
		a.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return answer{Body: c.Status}
		}
	}
	return answer{Body: "none"}
}

// TestContract compares the light API with a real kube-apiserver: both must give the same answers to
// the same requests.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, tc := range contract {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			real, light := tc.check(realAPI(t)), tc.check(lightAPI(t))
			for i, code := range tc.codes {
				if real[i].Code != code {
					t.Errorf("%s: the real API server answers %d, want %d: %v", tc.reason, real[i].Code, code, real[i].Body)
				}
			}
			if diff := cmp.Diff(real, light); diff != "" {
				t.Errorf("%s: the light one differs (-real +light):\n%s", tc.reason, diff)
			}
		})
	}
}

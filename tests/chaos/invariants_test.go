package chaos

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// always checks what has to hold at any moment.
func (w *world) always() {
	w.t.Helper()
	holders := map[string]string{}
	for _, a := range w.list(engine.IPAllocations) {
		address, _, _ := unstructured.NestedString(a.Object, "status", "address")
		holder := a.GetNamespace() + "/" + a.GetName()
		if phaseOf(&a) != "Allocated" || address == "" {
			continue
		}
		if other, taken := holders[address]; taken {
			w.fail(a.GetNamespace(), "%s is Allocated to %s and to %s", address, other, holder)
		}
		holders[address] = holder
	}
	machines := map[string]string{}
	for _, vm := range w.list(engine.VirtualMachines) {
		for _, owner := range vm.GetOwnerReferences() {
			if other, taken := machines[string(owner.UID)]; taken {
				w.fail(vm.GetNamespace(), "Machine %s has the virtual machines %s and %s", owner.Name, other, vm.GetName())
			}
			machines[string(owner.UID)] = vm.GetName()
		}
	}
}

// settle ends all trouble, and waits until everything is as it was asked for.
func (w *world) settle() {
	w.t.Helper()
	w.tell("calm")
	w.n.SetWeather(Weather{})
	w.e.SetFaults("talos", "[]")
	w.e.SetFaults("kubevirt", "[]")
	w.until(3*time.Minute, 200*time.Millisecond, w.unsettled)
}

// unsettled names an object that is not yet as it was asked for.
func (w *world) unsettled() (namespace, why string) {
	w.t.Helper()
	w.always()
	for _, s := range w.order {
		if phase, lives := w.living[s]; lives {
			if why := differs(w.get(s), phase); why != "" {
				return s.namespace, s.String() + " " + why
			}
		}
	}
	return "", ""
}

// differs says in what an object, nil if it is gone, is not in a phase. It is empty
// where it is.
func differs(obj *unstructured.Unstructured, phase string) string {
	if obj == nil {
		return "is gone"
	}
	found := phaseOf(obj)
	if observed, ok, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration"); ok && observed != obj.GetGeneration() {
		found += fmt.Sprintf(" of generation %d, not %d", observed, obj.GetGeneration())
	}
	if found == phase {
		return ""
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	told, _ := json.MarshalIndent(conditions, "  ", "  ")
	return fmt.Sprintf("is %q, not %q:\n  %s", found, phase, told)
}

// owned waits until what was made for an object is there once, and nothing else.
func (w *world) owned() {
	w.t.Helper()
	feed.Until(w.t, "everything has its owner", func() (bool, string) {
		why := w.orphan()
		return why == "", why
	})
}

// orphan names something that is there without its owner, or not there with it.
func (w *world) orphan() string {
	w.t.Helper()
	uids := map[types.UID]bool{}
	for _, kind := range []schema.GroupVersionResource{engine.KubernetesClusters, engine.Machines, engine.NetworkConfigurations, engine.NetworkNamespaces, engine.IPAllocations} {
		for _, obj := range w.list(kind) {
			uids[obj.GetUID()] = true
		}
	}
	made := []schema.GroupVersionResource{engine.VirtualMachines, engine.Claims, engine.Machines, engine.NetworkConfigurations, engine.IPAllocations, engine.Secrets, engine.ConfigMaps}
	for _, kind := range made {
		for _, obj := range w.list(kind) {
			for _, owner := range obj.GetOwnerReferences() {
				if strings.HasPrefix(owner.APIVersion, "vitistack.io/") && !uids[owner.UID] {
					return fmt.Sprintf("%s %s/%s is left, and its owner %s %s is gone", kind.Resource, obj.GetNamespace(), obj.GetName(), owner.Kind, owner.Name)
				}
			}
		}
	}
	if machines, vms := len(w.list(engine.Machines)), len(w.list(engine.VirtualMachines)); machines != vms {
		return fmt.Sprintf("%d virtual machines for %d Machines", vms, machines)
	}
	return ""
}

// confidential is what must stay in Secrets: keys and tokens in the YAML of Talos
// and of kubeconfigs.
var confidential = regexp.MustCompile(`(?i)(?:key|secret|token|key-data):\s*"?([A-Za-z0-9+/=._-]{16,})`)

// secretsKept looks for what Secrets hold wherever else the stack writes.
func (w *world) secretsKept() {
	w.t.Helper()
	type secret struct{ name, value string }
	var secrets []secret
	for _, obj := range w.list(engine.Secrets) {
		data, _, _ := unstructured.NestedStringMap(obj.Object, "data")
		for key, encoded := range data {
			value, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, match := range confidential.FindAllSubmatch(value, -1) {
				// The middle of a key, since all keys begin and end alike.
				middle := match[1][len(match[1])/2:]
				secrets = append(secrets, secret{obj.GetNamespace() + "/" + obj.GetName() + " " + key, string(middle[:min(40, len(middle))])})
			}
		}
	}
	if w.count(engine.KubernetesClusters) > 0 && len(secrets) == 0 {
		w.fail("", "there are clusters, and no Secrets with their keys")
	}
	look := func(where string, text []byte) {
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s.value)) {
				w.fail("", "%s has what Secret %s holds", where, s.name)
			}
		}
	}
	for _, dir := range []string{filepath.Join(w.e.Dir, "logs"), w.e.Results()} {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				if text, err := os.ReadFile(path); err == nil {
					look(path, text)
				}
			}
			return nil
		})
	}
	for _, kind := range []schema.GroupVersionResource{engine.Events, engine.ConfigMaps, engine.KubernetesClusters, engine.Machines} {
		for _, obj := range w.list(kind) {
			text, err := json.Marshal(obj.Object)
			if err != nil {
				w.t.Fatal(err)
			}
			look(kind.Resource+" "+obj.GetName(), text)
		}
	}
}

// historyBegins waits until the gateway has its database: what was there before the
// history began is no news.
func (w *world) historyBegins() {
	w.t.Helper()
	feed.Until(w.t, "the history begins", func() (bool, string) {
		_, err := w.ask("health/database")
		return err == nil, fmt.Sprint(err)
	})
}

// remembered checks that the history has the making of each Machine exactly once.
func (w *world) remembered() {
	w.t.Helper()
	machines := w.list(engine.Machines)
	// The gateway answers a caller once a second.
	w.until(time.Minute, 1100*time.Millisecond, func() (namespace, why string) {
		times, err := w.history("infrastructure.machine.created")
		if err != nil {
			return "", "the history: " + err.Error()
		}
		for _, m := range machines {
			if times[string(m.GetUID())] > 1 {
				w.fail(m.GetNamespace(), "Machine %s was created once, and %d times in the history", m.GetName(), times[string(m.GetUID())])
			}
			if times[string(m.GetUID())] == 0 {
				return m.GetNamespace(), fmt.Sprintf("the history: the making of %s is missing among %d of %d", m.GetName(), len(times), len(machines))
			}
		}
		return "", ""
	})
}

// history counts the events of a type, by the object that they are about.
func (w *world) history(eventType string) (map[string]int, error) {
	body, err := w.ask("api/v1/events?limit=1000&type=" + eventType)
	if err != nil {
		return nil, err
	}
	var told struct {
		Events []struct{ UID string }
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return nil, err
	}
	times := map[string]int{}
	for _, e := range told.Events {
		times[e.UID]++
	}
	return times, nil
}

// ask gets what the gateway has at a path. Everything but 200 is an error.
func (w *world) ask(path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.e.Gateway()+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", path, res.Status, body)
	}
	return body, err
}

// quiet checks that nothing is written while nothing changes.
func (w *world) quiet() {
	w.t.Helper()
	feed.Until(w.t, "nobody writes", func() (bool, string) {
		since := time.Now()
		time.Sleep(4 * time.Second)
		told := ""
		for _, r := range w.e.Requests(since) {
			if r.Writes() && r.Function() != "" {
				told += fmt.Sprintf("%s %s %s %s; ", r.Function(), r.Verb, r.ObjectRef.Resource, r.ObjectRef.Name)
			}
		}
		return told == "", told
	})
}

// gone deletes what is left, and checks that nothing stays of it.
func (w *world) gone() {
	w.t.Helper()
	for _, s := range w.order {
		if _, lives := w.living[s]; lives && s.resource != engine.NetworkNamespaces {
			w.remove(s)
		}
	}
	for _, namespace := range namespaces {
		empty(w.t, w.e, namespace)
	}
}

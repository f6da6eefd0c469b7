package chaos

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// confidential matches what must stay in Secrets: keys and tokens in the YAML of Talos and of
// kubeconfigs.
var confidential = regexp.MustCompile(`(?i)(?:key|secret|token|key-data):\s*"?([A-Za-z0-9+/=._-]{16,})`)

// word matches a value of a Secret that is only a name.
var word = regexp.MustCompile(`(?i)(token|secret|password)$`)

// checkSecrets searches for the content of Secrets in everything else that the stack writes.
func (w *env) checkSecrets() {
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
			if word.MatchString(key) && len(value) >= 16 {
				secrets = append(secrets, secret{obj.GetNamespace() + "/" + obj.GetName() + " " + key, string(value)})
			}
			for _, match := range confidential.FindAllSubmatch(value, -1) {
				// The middle of a key, because all keys begin and end alike.
				middle := match[1][len(match[1])/2:]
				secrets = append(secrets, secret{obj.GetNamespace() + "/" + obj.GetName() + " " + key, string(middle[:min(40, len(middle))])})
			}
		}
	}
	if w.count(engine.KubernetesClusters) > 0 && len(secrets) == 0 {
		w.fail("", "there are clusters without Secrets with their keys")
	}
	look := func(where string, text []byte) {
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s.value)) {
				w.fail("", "%s contains the content of Secret %s", where, s.name)
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
	for _, path := range []string{"api/v1/clusters", "api/v1/machines", "api/v1/events?limit=1000", "metrics"} {
		w.until(time.Minute, 1100*time.Millisecond, func() (namespace, why string) {
			body, err := w.e.Ask(path)
			if err != nil {
				return "", err.Error()
			}
			look("the gateway's "+path, body)
			return "", ""
		})
	}
	look("an event", w.n.Seen())
	for _, kind := range append(slices.Clone(reported), engine.Events, engine.ConfigMaps, engine.VirtualMachines, engine.Leases) {
		for _, obj := range w.list(kind) {
			text, err := json.Marshal(obj.Object)
			if err != nil {
				w.t.Fatal(err)
			}
			look(kind.Resource+" "+obj.GetName(), text)
		}
	}
}

// awaitHistory waits until the gateway has its database. Existing objects have no events in the
// history.
func (w *env) awaitHistory() {
	w.t.Helper()
	feed.Until(w.t, "the history begins", func() (bool, string) {
		_, err := w.e.Ask("health/database")
		return err == nil, fmt.Sprint(err)
	})
}

// checkHistory checks that the history has the creation of each Machine, and the deletion of each
// deleted one, exactly once.
func (w *env) checkHistory() {
	w.t.Helper()
	machines := map[string]string{}
	for _, m := range w.list(engine.Machines) {
		machines[string(m.GetUID())] = phaseOf(&m)
	}
	// The gateway answers one request per second.
	w.until(2*time.Minute, 1100*time.Millisecond, func() (namespace, why string) {
		made, err := w.history("infrastructure.machine.created")
		if err != nil {
			return "", "the history: " + err.Error()
		}
		ended, err := w.history("infrastructure.machine.deleted")
		if err != nil {
			return "", "the history: " + err.Error()
		}
		for uid, times := range made {
			if _, lives := machines[uid]; times > 1 || ended[uid] > 1 || lives && ended[uid] > 0 {
				w.fail("", "Machine %s was created once, and %d times in the history, which has its deletion %d times", uid, times, ended[uid])
			} else if !lives && ended[uid] == 0 {
				return "", "the history: Machine " + uid + " is deleted, and its deletion is missing"
			}
		}
		for uid, phase := range machines {
			if phase == "Running" && made[uid] == 0 {
				return "", fmt.Sprintf("the history: the creation of %s is missing among %d of %d", uid, len(made), len(machines))
			}
		}
		return "", ""
	})
}

// history counts the events of a type by object.
func (w *env) history(eventType string) (map[string]int, error) {
	const most = 1000
	body, err := w.e.Ask(fmt.Sprintf("api/v1/events?limit=%d&type=%s", most, eventType))
	if err != nil {
		return nil, err
	}
	var page struct {
		Events []struct{ UID string }
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, err
	}
	if len(page.Events) == most {
		w.t.Fatalf("the run has more than %d events %s: choose a shorter one", most, eventType)
	}
	times := map[string]int{}
	for _, e := range page.Events {
		times[e.UID]++
	}
	return times, nil
}

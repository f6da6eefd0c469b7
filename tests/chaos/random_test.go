package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/clock"
	"github.com/vitistack/stack/tests/stand/engine"
)

// settings are the settings of one run.
type settings struct {
	// seed and lasts are CHAOS_SEED and CHAOS_MINUTES.
	seed  uint64
	lasts time.Duration
	// long is whether a duration was set: a short run omits steps that take minutes.
	long bool
	// steps are the numbers of the steps in CHAOS_STEPS, for example 0,3,7. nil means all.
	steps map[int]bool
	last  int
	// attempts is CHAOS_SHRINK, the number of shorter runs after a failure.
	attempts int
}

func settingsOf(t *testing.T, getenv func(string) string) settings {
	t.Helper()
	s := settings{seed: 1, lasts: 20 * time.Second, long: getenv("CHAOS_MINUTES") != ""}
	number := func(name string, to func(float64)) {
		if text := getenv(name); text != "" {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil || n < 0 {
				t.Fatalf("%s is %q: write a number", name, text)
			}
			to(n)
		}
	}
	number("CHAOS_SEED", func(n float64) { s.seed = uint64(n) })
	number("CHAOS_MINUTES", func(n float64) { s.lasts = time.Duration(n * float64(time.Minute)) })
	number("CHAOS_SHRINK", func(n float64) { s.attempts = int(n) })
	if text := getenv("CHAOS_STEPS"); text != "" {
		s.steps = map[int]bool{}
		for _, one := range strings.Split(text, ",") {
			n, err := strconv.Atoi(one)
			if err != nil || n < 0 {
				t.Fatalf("CHAOS_STEPS is %q: write the numbers of steps, such as 0,3,7", text)
			}
			s.steps[n], s.last = true, max(s.last, n)
		}
	}
	return s
}

// hasStep reports whether the run has a step with a number after some time.
func (s settings) hasStep(step int, since time.Duration) bool {
	if s.steps != nil {
		return step <= s.last
	}
	return since < s.lasts
}

func (s settings) leavesOut(step int) bool { return s.steps != nil && !s.steps[step] }

// TestRandomSteps runs random actions of users and random faults for a while. It checks the invariants
// at all times, and finally that every object is as planned. make chaos SEED=… MINUTES=… runs
// another sequence.
func TestRandomSteps(t *testing.T) {
	t.Parallel()
	s := settingsOf(t, os.Getenv)
	var clocked []string
	if s.long {
		clocked = functions
	}
	w := newEnv(t, s, clocked)
	w.awaitHistory()
	base := w.base()
	w.e.CreateNamespace("chaos-spare")
	for _, namespace := range namespaces {
		w.e.CreateNamespace(namespace)
		w.create(subject{engine.NetworkNamespaces, namespace, "network"}, want{phase: "Ready"}, map[string]any{
			"apiVersion": "vitistack.io/v1alpha2", "kind": "NetworkNamespace", "spec": networkSpec(namespace, base),
		})
	}
	a := &generator{random: rand.New(rand.NewPCG(s.seed, s.seed)), long: s.long}
	for i := 0; s.hasStep(i, time.Since(w.began)); i++ {
		next := a.step()
		if s.leavesOut(i) {
			continue
		}
		time.Sleep(next.pause)
		w.at = i
		w.did = append(w.did, i)
		next.do(w)
		w.checkInvariants()
	}
	w.converge()
	w.checkOwners()
	w.checkHistory()
	w.checkIdle()
	w.checkSecrets()
	w.deleteAll()
	t.Logf("%d things happened", len(w.log))
}

// newEnv starts an engine with faults of events, of requests, and of the clocks of some functions.
func newEnv(t *testing.T, s settings, clocked []string, flags ...string) *env {
	t.Helper()
	t.Logf("seed %d", s.seed)
	w := &env{
		t: t, settings: s, began: time.Now(), at: -1,
		living: map[subject]want{}, keys: map[string]string{}, etcds: map[string]uint64{},
		protected: map[subject]types.UID{}, crashed: map[types.UID]string{}, cut: map[subject]bool{}, pools: map[subject]*poolState{},
	}
	dir := t.TempDir()
	w.n = NewNetwork(t, s.seed)
	w.api = NewAPI(t, dir, s.seed, func(function string) { _ = w.e.KillProcess(function) })
	flags = append([]string{"--ingress", w.n.URL, "--apiserver", w.api.URL, "--config", "RESYNC_PERIOD=3s", "--audit"}, flags...)
	if len(clocked) > 0 {
		w.clocks = clock.New(t, clocked...)
		flags = append(flags, w.clocks.Flags()...)
	}
	w.e = engine.StartIn(t, dir, flags...)
	w.n.SetBroker(w.e.Ingress())
	w.began = time.Now()
	return w
}

// simState returns the folder of a simulator's state.
func (w *env) simState(name ...string) string {
	return filepath.Join(append([]string{w.e.Dir, "sim"}, name...)...)
}

// TestGenerator plans runs twice, and with one step removed.
func TestGenerator(t *testing.T) {
	t.Parallel()
	var poolInPlace, controlPlaneInPlace bool
	planned := func(seed uint64) (steps []string) {
		a := &generator{random: rand.New(rand.NewPCG(seed, seed)), long: true}
		for range 300 {
			s := a.step()
			steps = append(steps, fmt.Sprint(s.pause, len(a.living)))
			for _, b := range a.living {
				poolInPlace = poolInPlace || b.pool.inPlace
				controlPlaneInPlace = controlPlaneInPlace || b.pool.controlSize != "" && b.controlInPlace
			}
		}
		return steps
	}
	if one, two := planned(7), planned(7); fmt.Sprint(one) != fmt.Sprint(two) {
		t.Error("the same seed leads to two different runs")
	}
	if fmt.Sprint(planned(7)) == fmt.Sprint(planned(8)) {
		t.Error("two seeds lead to the same run")
	}
	if !poolInPlace || !controlPlaneInPlace {
		t.Errorf("a pool is resized in place: %t, a control plane: %t, want both", poolInPlace, controlPlaneInPlace)
	}
}

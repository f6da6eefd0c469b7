package chaos

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestRandomStory has users and misfortune do things at random for a while, and
// checks all the time what must always hold, and at the end that everything is as
// it was asked for. make chaos SEED=… MINUTES=… tells another story.
func TestRandomStory(t *testing.T) {
	t.Parallel()
	seed, lasts := uint64(1), 20*time.Second
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("CHAOS_SEED is %q: write a whole number", text)
		}
		seed = given
	}
	if text := os.Getenv("CHAOS_MINUTES"); text != "" {
		minutes, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("CHAOS_MINUTES is %q: write a number", text)
		}
		lasts = time.Duration(minutes * float64(time.Minute))
	}
	e, n := start(t, seed, "--audit")
	w := &world{t: t, e: e, n: n, random: rand.New(rand.NewPCG(seed, seed)), began: time.Now(), living: map[subject]string{}}
	w.historyBegins()
	for i, namespace := range namespaces {
		e.CreateNamespace(namespace)
		w.newNetwork(namespace, i)
	}
	for time.Since(w.began) < lasts {
		w.act()
		w.always()
		time.Sleep(time.Duration(100+w.random.IntN(500)) * time.Millisecond)
	}
	w.settle()
	w.owned()
	w.remembered()
	w.quiet()
	w.secretsKept()
	w.gone()
	t.Logf("%d things happened", len(w.story))
}

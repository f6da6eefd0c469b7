package chaos

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shrink removes steps as long as the remaining ones fail, many at once at first, and then fewer. It
// makes at most the given number of attempts.
func shrink(steps []int, attempts int, fails func([]int) bool) []int {
	for size := (len(steps) + 1) / 2; size > 0; {
		dropped := false
		for from := 0; from < len(steps) && attempts > 0; {
			shorter := slices.Delete(slices.Clone(steps), from, min(from+size, len(steps)))
			attempts--
			if len(shorter) > 0 && fails(shorter) {
				steps, dropped = shorter, true
			} else {
				from += size
			}
		}
		if attempts == 0 || size == 1 && !dropped {
			return steps
		}
		if !dropped {
			size = (size + 1) / 2
		}
		size = min(size, (len(steps)+1)/2)
	}
	return steps
}

func TestShrink(t *testing.T) {
	t.Parallel()
	has := func(needed ...int) func([]int) bool {
		return func(steps []int) bool {
			for _, n := range needed {
				if !slices.Contains(steps, n) {
					return false
				}
			}
			return true
		}
	}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	cases := map[string]struct {
		reason   string
		attempts int
		fails    func([]int) bool
		want     []int
	}{
		"One":      {"one step causes the failure", 100, has(6), []int{6}},
		"Two":      {"two distant steps cause the failure", 100, has(1, 8), []int{1, 8}},
		"All":      {"all are", 100, has(all...), all},
		"Patience": {"one attempt removes at most one half", 1, has(9), []int{5, 6, 7, 8, 9}},
		"None":     {"without attempts all steps remain", 0, has(9), all},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := shrink(all, tc.attempts, tc.fails); !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// repeatShorter repeats the run without some of its steps, in separate processes, and returns the output of
// the shortest one that fails.
func (w *env) repeatShorter() string {
	if w.settings.attempts == 0 || w.settings.steps != nil {
		return ""
	}
	w.e.Stop()
	said := "no shorter run fails"
	shrink(w.did, w.settings.attempts, func(steps []int) bool {
		command := exec.Command(os.Args[0], "-test.run", "^TestRandomSteps$", "-test.timeout", "30m")
		command.Env = append(os.Environ(), "CHAOS_STEPS="+numbers(steps))
		out, err := command.CombinedOutput()
		if err != nil {
			said = "A shorter run that fails, with CHAOS_STEPS=" + numbers(steps) + ":\n" + string(out[:min(len(out), 8000)])
		}
		w.t.Logf("%d of %d steps: %v", len(steps), len(w.did), err)
		return err != nil
	})
	return said
}

func numbers(steps []int) string {
	texts := make([]string, len(steps))
	for i, n := range steps {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

package versions

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestResolveKubernetes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ because, wanted, talos, want, reason string }{
		"Minor":     {"a minor version means its newest patch release", "1.33", "1.13.9", "1.33.13", ""},
		"Full":      {"a full version is taken as it is", "1.33.4", "1.13.9", "1.33.4", ""},
		"V":         {"a v is no part of the version", "v1.34.1", "1.12.0", "1.34.1", ""},
		"Unknown":   {"it has not been released", "1.99", "1.13.9", "", "KubernetesVersionUnknown"},
		"NoVersion": {"it is no version", "new", "1.13.9", "", "KubernetesVersionUnknown"},
		"TooOld":    {"this Talos does not run it", "1.29", "1.13.9", "", "KubernetesVersionNotSupported"},
		"NoTalos":   {"the Talos version is none", "1.33", "thirteen", "", "TalosVersionUnknown"},
	} {
		got, err := ResolveKubernetes(tc.wanted, tc.talos)
		if got != tc.want || reasonOf(err) != tc.reason {
			t.Errorf("%s: %s: got %q, %v, want %q and the reason %q", name, tc.because, got, err, tc.want, tc.reason)
		}
	}
	for minor, full := range patchReleases {
		if !strings.HasPrefix(full, minor+".") {
			t.Errorf("release %s is not one of %s", full, minor)
		}
	}
}

func reasonOf(err error) string {
	var e Error
	errors.As(err, &e)
	return e.Reason
}

// TestTalosUpgrade checks that a refused upgrade of Talos says which step comes first, and that this step is possible.
func TestTalosUpgrade(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because  string
		from, to Pair
		want     string
		step     Pair
	}{
		"Next":      {"the installer upgrades from it", Pair{"1.12.0", "1.33.1"}, Pair{"1.13.9", "1.33.1"}, "", Pair{}},
		"Old":       {"two steps are needed", Pair{"1.10.0", "1.31.1"}, Pair{"1.13.9", "1.31.1"}, "write a release of 1.12 into spec.talos.version first", Pair{"1.12.0", "1.31.1"}},
		"VeryOld":   {"several are", Pair{"1.8.0", "1.28.1"}, Pair{"1.13.9", "1.28.1"}, "write a release of 1.10 into spec.talos.version first", Pair{"1.10.0", "1.28.1"}},
		"Unknown":   {"it does not exist", Pair{"1.13.9", "1.33.1"}, Pair{"9.9.9", "1.33.1"}, "write another version, such as " + DefaultTalos, Pair{}},
		"Downgrade": {"the running version is too new", Pair{"1.13.9", "1.33.1"}, Pair{"1.10.9", "1.33.1"}, "write another version, such as " + DefaultTalos, Pair{}},
		"Both":      {"neither Talos runs both Kubernetes versions", Pair{"1.11.0", "1.29.1"}, Pair{"1.13.9", "1.35.1"}, "keep Talos 1.11.0 in spec.talos.version until the cluster runs Kubernetes 1.31", Pair{"1.11.0", "1.31.1"}},
	} {
		err := CheckTalosUpgrade(tc.from, tc.to)
		if tc.want == "" && err != nil || tc.want != "" && (reasonOf(err) != "TalosUpgradePath" || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.because, err, tc.want)
		}
		if tc.step != (Pair{}) && (CheckTalosUpgrade(tc.from, tc.step) != nil || !IsSupported(tc.step.Talos, tc.step.Kubernetes)) {
			t.Errorf("%s: the step to %v is not possible: %v", name, tc.step, CheckTalosUpgrade(tc.from, tc.step))
		}
	}
}

func TestUpgrades(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because string
		running Pair
		want    []string
	}{
		"Both":   {"a patch release and the next minor version", Pair{"1.13.9", "1.33.1"}, []string{"1.33.13", "1.34.13"}},
		"Minor":  {"the newest patch release runs", Pair{"1.13.9", "1.33.13"}, []string{"1.34.13"}},
		"Newest": {"there is no newer one", Pair{"1.13.9", "1.36.6"}, nil},
		"Talos":  {"the Talos version does not run the next minor version", Pair{"1.9.0", "1.32.1"}, []string{"1.32.13"}},
		"New":    {"the cluster does not run yet", Pair{Talos: "1.10.0"}, []string{"1.29.15", "1.30.14", "1.31.14", "1.32.13", "1.33.13"}},
		"None":   {"nothing is known of it", Pair{}, nil},
	} {
		got := Upgrades(tc.running)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %s: got %v, want %v", name, tc.because, got, tc.want)
		}
		for _, version := range got {
			if err := CheckKubernetesUpgrade(tc.running.Kubernetes, version); err != nil || !IsSupported(tc.running.Talos, version) {
				t.Errorf("%s: %s is listed, and is not possible: %v", name, version, err)
			}
		}
	}
}

func TestIsReleased(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because, version string
		want             bool
	}{
		"First":   {"every minor version begins with it", "1.33.0", true},
		"Newest":  {"it is the newest known one", "v1.33.13", true},
		"Higher":  {"it may be released later", "1.33.14", false},
		"Minor":   {"no release of it is known", "1.99.0", false},
		"Nothing": {"it is no version", "new", false},
	} {
		if got := IsReleased(tc.version); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.because, got)
		}
	}
}

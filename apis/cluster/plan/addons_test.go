package plan

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWithTag(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"ghcr.io/siderolabs/kubelet:v1.33.4":                  "ghcr.io/siderolabs/kubelet:v1.34.1",
		"mirror.example.com:5000/k8s/kubelet":                 "mirror.example.com:5000/k8s/kubelet:v1.34.1",
		"mirror.example.com:5000/kubelet:v1.33.4@sha256:abcd": "mirror.example.com:5000/kubelet:v1.34.1",
	} {
		if got := WithTag(image, "v1.34.1"); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
}

func TestOutdated(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, present, wanted string
		want                    bool
	}{
		"Same":     {"it runs the wanted version", "registry.k8s.io/kube-proxy:v1.34.1", "registry.k8s.io/kube-proxy:v1.34.1", false},
		"Older":    {"Talos does not upgrade it again", "registry.k8s.io/kube-proxy:v1.33.4", "registry.k8s.io/kube-proxy:v1.34.1", true},
		"Pinned":   {"a digest is a version too", "registry.k8s.io/kube-proxy:v1.33.4@sha256:abcd", "registry.k8s.io/kube-proxy:v1.34.1", true},
		"Mirror":   {"the configuration names a mirror", "registry.k8s.io/kube-proxy:v1.33.4", "mirror.example.com/kube-proxy:v1.34.1", true},
		"Mirrored": {"the mirror has a newer version", "mirror.example.com/kube-proxy:v1.33.4", "mirror.example.com/kube-proxy:v1.34.1", true},
		"Foreign":  {"a user runs another image", "example.com/proxy:v1.33.4", "registry.k8s.io/kube-proxy:v1.34.1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := Addon{"daemonsets", "kube-proxy", tc.wanted, "registry.k8s.io/kube-proxy"}
			if got := len(a.Outdated([]corev1.Container{{Name: "kube-proxy", Image: tc.present}})) == 1; got != tc.want {
				t.Errorf("%s: changed %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Addon is a workload that Talos installs once into a new cluster and never upgrades.
type Addon struct {
	// Resource and Name are its path in the namespace kube-system.
	Resource, Name string
	// Image is the image that Talos would install now, and DefaultImage the name of the image
	// unless the configuration names another one.
	Image, DefaultImage string
}

// Outdated returns the containers that run another version of the image, as a strategic merge
// patch needs them.
func (a Addon) Outdated(containers []corev1.Container) []map[string]string {
	var found []map[string]string
	for _, c := range containers {
		name := WithTag(c.Image, "")
		if c.Image != a.Image && (name == WithTag(a.Image, "") || name == WithTag(a.DefaultImage, "")) {
			found = append(found, map[string]string{"name": c.Name, "image": a.Image})
		}
	}
	return found
}

// WithTag returns an image reference with another tag and without a digest.
func WithTag(image, tag string) string {
	name, _ := splitImage(image)
	return name + ":" + tag
}

// TagOf returns the tag of an image reference, or an empty string if it has none.
func TagOf(image string) string {
	_, tag := splitImage(image)
	return tag
}

// splitImage returns the name and the tag of an image reference, without its digest. The part before the last slash may be a host with a port.
func splitImage(image string) (name, tag string) {
	image, _, _ = strings.Cut(image, "@")
	slash := strings.LastIndex(image, "/")
	name, tag, _ = strings.Cut(image[slash+1:], ":")
	return image[:slash+1] + name, tag
}

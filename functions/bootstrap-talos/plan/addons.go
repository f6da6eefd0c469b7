package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Addon is something that Talos puts into a new cluster, and does not touch again.
type Addon struct {
	// resource and Name are its path in the namespace kube-system.
	Resource, Name string
	// Image is what a node's Talos would run now, and usual the name of the image
	// unless the configuration says another one.
	Image, DefaultImage string
}

// Outdated are the containers, by what a patch needs of them, that run another
// version of the image.
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

// WithTag is an image reference with another tag, and without a digest.
func WithTag(image, tag string) string {
	image, _, _ = strings.Cut(image, "@")
	slash := strings.LastIndex(image, "/")
	name, _, _ := strings.Cut(image[slash+1:], ":")
	return image[:slash+1] + name + ":" + tag
}

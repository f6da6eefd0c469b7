package talos

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PodVersions are the versions of the configuration, its files and the secrets that Talos has rendered
// a static pod from. The mirror pod has them as annotations once the kubelet runs the static pod.
type PodVersions struct{ config, files, secrets string }

// VersionsOf returns the versions in the annotations of a pod. They are empty if Talos has not
// rendered it.
func VersionsOf(annotations map[string]string) PodVersions {
	return PodVersions{
		config:  annotations[constants.AnnotationStaticPodConfigVersion],
		files:   annotations[constants.AnnotationStaticPodConfigFileVersion],
		secrets: annotations[constants.AnnotationStaticPodSecretsVersion],
	}
}

// RenderedPods returns the static pods that Talos has rendered for a control plane, by name. It
// returns an error if the API server is not one of them.
func RenderedPods(ctx context.Context, address string, a *Credentials) (map[string]PodVersions, error) {
	ctx, c, end, err := Connect(ctx, address, a, ShortTimeout)
	if err != nil {
		return nil, err
	}
	defer end()
	list, err := safe.StateListAll[*k8s.StaticPod](ctx, c.COSI)
	if err != nil {
		return nil, fmt.Errorf("list the static pods of %s: %w", address, err)
	}
	rendered := map[string]PodVersions{}
	for pod := range list.All() {
		versions := VersionsOf((&unstructured.Unstructured{Object: pod.TypedSpec().Pod}).GetAnnotations())
		if versions != (PodVersions{}) {
			rendered[pod.Metadata().ID()] = versions
		}
	}
	if _, ok := rendered[k8s.APIServerID]; !ok {
		return nil, fmt.Errorf("node %s: Talos has not rendered %s", address, k8s.APIServerID)
	}
	return rendered, nil
}

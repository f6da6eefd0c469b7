package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// checkLabels returns an error for the first label, in alphabetical order, that the Kubernetes API
// refuses. The schema of a KubernetesCluster cannot check the keys of a map.
func checkLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("no node can have the label %q: change its key in labels (%s)", key, strings.Join(problems, "; "))
		}
		if problems := validation.IsValidLabelValue(labels[key]); len(problems) > 0 {
			return fmt.Errorf("no node can have the label %s=%q: change its value in labels (%s)", key, labels[key], strings.Join(problems, "; "))
		}
	}
	return nil
}

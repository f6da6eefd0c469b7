package changes

import (
	"slices"
	"strings"
)

// creationOnly are the fields that a ClusterTemplate gives to new clusters only.
var creationOnly = []string{"controlPlaneEndpoint.", "networking."}

// clusterTemplateEffects has the fields of a ClusterTemplate.
var clusterTemplateEffects = append(templatedEffects(),
	Effect{"rollout.maxConcurrent", "template", Applied, "this many clusters are updated at the same time, in waves without a number of their own"},
	Effect{"rollout.paused", "template", Applied, "no further cluster is updated; those that are being updated finish"},
	Effect{"rollout.waves[].maxConcurrent", "template", Applied, "this many clusters of the wave are updated at the same time"},
	Effect{"rollout.waves[].name", "template", Applied, "the status names the wave like this; a pause after it ends"},
	Effect{"rollout.waves[].pauseAfter", "template", Applied, "the next wave starts at this time after the end of the wave, also if the pause has begun"},
	Effect{"rollout.waves[].selector.matchLabels", "template", Applied, "other clusters belong to the wave"},
)

// templatedEffects returns the effects of the fields that a ClusterTemplate writes into its clusters, in the order of
// their paths.
func templatedEffects() []Effect {
	own := []string{
		"addons[].", "controlPlaneEndpoint.mode", "networking.", "talos.configChanges", "talos.installDisk", "talos.patches.", "talos.schematic", "talos.version",
		"topology.controlplane.", "topology.version", "topology.workers[].",
	}
	var all []Effect
	for _, e := range kubernetesClusterEffects {
		isOwn := slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(e.Field, prefix) })
		if !isOwn || slices.ContainsFunc(all, func(known Effect) bool { return known.Field == "cluster."+e.Field }) {
			continue
		}
		text := "clusters without a value of their own get it, in the order of the waves"
		if slices.ContainsFunc(creationOnly, func(prefix string) bool { return strings.HasPrefix(e.Field, prefix) }) {
			text = "new clusters without a value of their own get it; clusters that exist keep theirs"
		}
		all = append(all, Effect{"cluster." + e.Field, "template", Applied, text})
	}
	return all
}

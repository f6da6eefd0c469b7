package preview

import (
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// addons adds what bootstrap-talos says of the add-ons of a cluster that are not applied, as far as that does not take
// their manifests.
func (m clusterPreview) addons(kc *v1alpha1.KubernetesCluster) {
	for i, a := range kc.Spec.Addons {
		if slices.ContainsFunc(kc.Status.Addons, func(s v1alpha1.AddonStatus) bool { return !addons.NeedsRead(a, s, false, false) }) {
			continue
		}
		pointer := fmt.Sprintf("/spec/addons/%d/", i)
		if a.URL == "" {
			m.addonConfigMap(a, pointer+"configMap")
			continue
		}
		if m.world.Settings == nil || m.world.Settings.AddonHosts == nil {
			m.uncheck(fmt.Sprintf("whether bootstrap-talos allows %s (addons.allowedHosts of the chart)", a.URL))
			continue
		}
		if err := addons.CheckHost(a, m.world.Settings.AddonHosts); err != nil {
			m.refuseBy(pointer+"url", err)
		}
	}
}

// addonConfigMap warns if the ConfigMap of an add-on does not exist: it may be created later.
func (m clusterPreview) addonConfigMap(a v1alpha1.ClusterAddon, pointer string) {
	what := fmt.Sprintf("whether ConfigMap %s of add-on %s exists", a.ConfigMap, a.Name)
	if m.world.ConfigMap == nil {
		m.uncheck(what)
		return
	}
	_, exists, err := m.world.ConfigMap(m.result.Namespace, string(a.ConfigMap))
	if err != nil {
		m.uncheck(what)
		return
	}
	if err := addons.CheckNames(a, exists); err != nil {
		reason, message := reasonOf(err)
		m.warn(pointer, reason, "%s", message)
	}
}

package app

import (
	"cmp"
	"strings"

	"github.com/vitistack/stack/apis/cluster/addons"
	machineplan "github.com/vitistack/stack/apis/machine/plan"
	shared "github.com/vitistack/stack/apis/preview"
	segmentplan "github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/gateway/internal/config"
)

// previewSettings returns the settings of the functions, and the Talos version of clusters that name none.
func previewSettings(c config.Preview) (settings shared.Settings, talos string) {
	return shared.Settings{
		OptionalPools: segmentplan.ArePoolsOptional(c.NetworkPools), Datacenters: segmentplan.ParseDatacenters(c.SeparateDatacenters),
		AddonHosts: addonHosts(c.AddonHosts),
		ImageHosts: outbound.Parse(machineplan.ImageHosts(c.ImageFactory, c.ImageHosts, c.AllowedEndpoints)),
	}, cmp.Or(c.TalosVersion, versions.DefaultTalos)
}

// addonHosts returns the hosts of a list. An empty list allows none.
func addonHosts(list string) addons.HostRules {
	if strings.TrimSpace(list) == "" {
		return addons.NoHosts{}
	}
	return outbound.Parse(list)
}

package talos

import (
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// Components of a simulated Talos. They are the same for every version, because no test depends on
// them.
const (
	kernelVersion     = "6.18.44"
	containerdVersion = constants.DefaultContainerdVersion
	etcdVersion       = "3.6.12"
)

// coreDNS returns the image that a machine puts into a new cluster, from the machinery of its version.
func (n *node) coreDNS() string {
	if own := n.config.RawV1Alpha1().ClusterConfig.CoreDNSConfig; own != nil && own.CoreDNSImage != "" {
		return own.CoreDNSImage
	}
	tag := constants.DefaultCoreDNSVersion
	switch {
	case !n.atLeast(config.TalosVersion1_12):
		tag = "v1.12.4"
	case !n.atLeast(config.TalosVersion1_13):
		tag = "v1.13.2"
	}
	return constants.CoreDNSImage + ":" + tag
}

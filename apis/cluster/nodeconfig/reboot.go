package nodeconfig

import (
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// NeedsReboot reports whether Talos applies a difference between two configurations at the next boot, although it accepts it
// without one.
func NeedsReboot(present, wanted config.Provider) bool {
	return len(Read(present).Compare(Read(wanted)).AtReboot) > 0 || !reflect.DeepEqual(etcdSettings(present), etcdSettings(wanted))
}

// etcdSettings returns what a control plane starts its etcd with, without the authority, which Talos renews at once.
func etcdSettings(cfg config.Provider) any {
	raw := cfg.RawV1Alpha1()
	if raw == nil || raw.ClusterConfig == nil || raw.ClusterConfig.EtcdConfig == nil || cfg.Machine() == nil || !cfg.Machine().Type().IsControlPlane() {
		return v1alpha1.EtcdConfig{}
	}
	settings := *raw.ClusterConfig.EtcdConfig
	settings.RootCA = nil
	return settings
}

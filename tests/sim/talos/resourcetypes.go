package talos

import (
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/security"
	"github.com/siderolabs/talos/pkg/machinery/resources/siderolink"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// resourceNamespaces are the namespaces of a real machine.
var resourceNamespaces = []resource.Namespace{
	v1alpha1.NamespaceName, clusterres.NamespaceName, clusterres.RawNamespaceName, config.NamespaceName,
	etcd.NamespaceName, files.NamespaceName, hardware.NamespaceName, k8s.NamespaceName,
	k8s.ControlPlaneNamespaceName, kubespan.NamespaceName, network.NamespaceName, network.ConfigNamespaceName,
	cri.NamespaceName, secrets.NamespaceName, security.NamespaceName, perf.NamespaceName,
}

// resourceTypes are the known types. Most have no resources, so that the answer is an empty list, as
// on a real machine.
var resourceTypes = []meta.ResourceWithRD{
	&block.Device{}, &block.DiscoveredVolume{}, &block.Disk{}, &block.MountStatus{}, &block.SwapStatus{},
	&block.Symlink{}, &block.SystemDisk{}, &block.UserDiskConfigStatus{}, &block.VolumeConfig{},
	&block.VolumeMountStatus{}, &block.VolumeStatus{},
	&clusterres.Affiliate{}, &clusterres.Config{}, &clusterres.Identity{}, &clusterres.Info{}, &clusterres.Member{},
	&config.MachineConfig{}, &config.MachineType{},
	&cri.ImageCacheConfig{}, &cri.RegistriesConfig{}, &cri.SeccompProfile{},
	&etcd.Config{}, &etcd.Member{}, &etcd.PKIStatus{}, &etcd.Spec{},
	&files.EtcFileSpec{}, &files.EtcFileStatus{},
	&hardware.MemoryModule{}, &hardware.PCIDevice{}, &hardware.Processor{}, &hardware.SystemInformation{},
	&k8s.APIServerConfig{}, &k8s.BootstrapManifestsConfig{}, &k8s.ControllerManagerConfig{}, &k8s.Endpoint{},
	&k8s.KubeletConfig{}, &k8s.KubeletSpec{}, &k8s.KubePrismConfig{}, &k8s.Manifest{}, &k8s.ManifestStatus{},
	&k8s.NodeAnnotationSpec{}, &k8s.NodeCordonedSpec{}, &k8s.NodeIP{}, &k8s.NodeLabelSpec{}, &k8s.Nodename{},
	&k8s.NodeStatus{}, &k8s.NodeTaintSpec{}, &k8s.SchedulerConfig{}, &k8s.StaticPod{}, &k8s.StaticPodStatus{},
	&kubespan.Config{}, &kubespan.Identity{}, &kubespan.PeerStatus{},
	&network.AddressSpec{}, &network.AddressStatus{}, &network.DNSUpstream{}, &network.EthernetStatus{},
	&network.HardwareAddr{}, &network.HostnameSpec{}, &network.HostnameStatus{}, &network.LinkSpec{},
	&network.LinkStatus{}, &network.NodeAddress{}, &network.OperatorSpec{}, &network.ProbeStatus{},
	&network.ResolverSpec{}, &network.ResolverStatus{}, &network.RouteSpec{}, &network.RouteStatus{},
	&network.Status{}, &network.TimeServerSpec{}, &network.TimeServerStatus{},
	&perf.CPU{}, &perf.Memory{},
	&runtime.Diagnostic{}, &runtime.ExtensionServiceConfig{}, &runtime.ExtensionStatus{}, &runtime.KernelCmdline{},
	&runtime.KernelModuleSpec{}, &runtime.KernelParamStatus{}, &runtime.MachineStatus{}, &runtime.MetaKey{},
	&runtime.MountStatus{}, &runtime.PlatformMetadata{}, &runtime.SecurityState{}, &runtime.Version{},
	&runtime.WatchdogTimerStatus{},
	&secrets.API{}, &secrets.CertSAN{}, &secrets.Etcd{}, &secrets.EtcdRoot{}, &secrets.Kubelet{},
	&secrets.Kubernetes{}, &secrets.KubernetesRoot{}, &secrets.MaintenanceRoot{}, &secrets.OSRoot{}, &secrets.Trustd{},
	&security.ImageVerificationRule{},
	&siderolink.Config{}, &siderolink.Status{},
	&time.AdjtimeStatus{}, &time.Status{},
	&v1alpha1.Service{},
}

package talos

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/dustin/go-humanize"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// resources returns all COSI resources of the machine. Callers hold Fleet.mu.
func (b *boot) resources() []resource.Resource {
	n := b.node
	f := b.facts()
	all := append(hardwareResources(n.Machine), networkResources(n.Machine, b.network, b.vips)...)
	if n.config != nil {
		giveAliases(all, n)
	}
	all = append(all, runtimeResources(n, f)...)
	all = append(all, diskResources(n)...)
	if n.config != nil {
		all = append(all, b.clusterResources(f)...)
	}
	return all
}

func hardwareResources(m Machine) []resource.Resource {
	system := hardware.NewSystemInformation(hardware.SystemInformationID)
	*system.TypedSpec() = hardware.SystemInformationSpec{
		Manufacturer: "QEMU", ProductName: "Standard PC (Q35 + ICH9, 2009)", UUID: m.ID,
	}
	all := []resource.Resource{system}
	for i := range m.cpus() {
		cpu := hardware.NewProcessorInfo(fmt.Sprintf("CPU-%d", i))
		*cpu.TypedSpec() = hardware.ProcessorSpec{
			Socket: fmt.Sprintf("CPU %d", i), Manufacturer: "QEMU", ProductName: "Simulated", CoreCount: 1, CoreEnabled: 1, ThreadCount: 1,
		}
		all = append(all, cpu)
	}
	module := hardware.NewMemoryModuleInfo("DIMM-0")
	*module.TypedSpec() = hardware.MemoryModuleSpec{Size: uint32(m.memory() >> 20), DeviceLocator: "DIMM 0", Manufacturer: "QEMU"}
	return append(all, module)
}

// linkStatus returns the resource of a network interface.
func linkStatus(m Machine, at int) *network.LinkStatus {
	link := m.Links[at]
	mac, _ := net.ParseMAC(link.MAC) // a malformed address is shown as none
	status := network.NewLinkStatus(network.NamespaceName, link.Name)
	*status.TypedSpec() = network.LinkStatusSpec{
		Index: uint32(at + 2), Type: nethelpers.LinkEther, HardwareAddr: nethelpers.HardwareAddr(mac), PermanentAddr: nethelpers.HardwareAddr(mac),
		BroadcastAddr: nethelpers.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, MTU: 1500, QueueDisc: "pfifo_fast",
		OperationalState: nethelpers.OperStateUp, LinkState: true, Driver: "virtio_net", BusPath: fmt.Sprintf("0000:0%d:00.0", at+1),
		Flags: nethelpers.LinkFlags(nethelpers.LinkUp | nethelpers.LinkBroadcast | nethelpers.LinkRunning | nethelpers.LinkMulticast | nethelpers.LinkLowerUp),
		Port:  nethelpers.Other, Duplex: nethelpers.Unknown,
	}
	if link.Temporary {
		status.TypedSpec().PermanentAddr = nil
	}
	return status
}

// giveAliases sets the alias of each link from the configuration.
func giveAliases(all []resource.Resource, n *node) {
	for _, r := range all {
		link, ok := r.(*network.LinkStatus)
		if !ok {
			continue
		}
		at := slices.IndexFunc(n.Machine.Links, func(l Link) bool { return l.Name == link.Metadata().ID() })
		if names := aliases(n.Machine, at, n.config); len(names) > 1 {
			link.TypedSpec().Alias = names[len(names)-1]
		}
	}
}

func networkResources(m Machine, n wiring, vips []netip.Addr) []resource.Resource {
	var all []resource.Resource
	for i := range m.Links {
		all = append(all, linkStatus(m, i))
	}
	var addresses []netip.Prefix
	if n.address.IsValid() {
		addresses = append(addresses, n.address)
	}
	for _, vip := range vips {
		addresses = append(addresses, netip.PrefixFrom(vip, vip.BitLen()))
	}
	for _, address := range addresses {
		all = append(all, addressStatus(m.Links[0], address))
	}
	for _, id := range []resource.ID{
		network.NodeAddressDefaultID, network.NodeAddressCurrentID, network.NodeAddressAccumulativeID, network.NodeAddressRoutedID,
		network.FilteredNodeAddressID(network.NodeAddressCurrentID, k8s.NodeAddressFilterNoK8s),
		network.FilteredNodeAddressID(network.NodeAddressAccumulativeID, k8s.NodeAddressFilterNoK8s),
	} {
		list := network.NewNodeAddress(network.NamespaceName, id)
		list.TypedSpec().Addresses = addresses
		if id == network.NodeAddressDefaultID && len(addresses) > 1 {
			list.TypedSpec().Addresses = addresses[:1]
		}
		all = append(all, list)
	}
	hostname := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	*hostname.TypedSpec() = network.HostnameStatusSpec{Hostname: n.hostname, Domainname: n.domain}
	ready := network.NewStatus(network.NamespaceName, network.StatusID)
	*ready.TypedSpec() = network.StatusSpec{
		AddressReady: n.address.IsValid(), ConnectivityReady: n.address.IsValid(), HostnameReady: true, EtcFilesReady: true,
	}
	all = append(all, hostname, ready)
	if n.gateway.IsValid() {
		all = append(all, defaultRoute(m.Links[0], n.gateway))
	}
	return all
}

func addressStatus(link Link, address netip.Prefix) resource.Resource {
	status := network.NewAddressStatus(network.NamespaceName, network.AddressID(link.Name, address))
	*status.TypedSpec() = network.AddressStatusSpec{
		Address: address, Local: address.Addr(), LinkIndex: 2, LinkName: link.Name,
		Family: family(address.Addr()), Scope: nethelpers.ScopeGlobal, Flags: nethelpers.AddressFlags(nethelpers.AddressPermanent),
	}
	return status
}

func defaultRoute(link Link, gateway netip.Addr) resource.Resource {
	f := family(gateway)
	route := network.NewRouteStatus(network.NamespaceName, network.RouteID(nethelpers.TableMain, f, netip.Prefix{}, gateway, network.DefaultRouteMetric, link.Name))
	*route.TypedSpec() = network.RouteStatusSpec{
		Family: f, Gateway: gateway, OutLinkIndex: 2, OutLinkName: link.Name, Table: nethelpers.TableMain,
		Priority: network.DefaultRouteMetric, Scope: nethelpers.ScopeGlobal, Type: nethelpers.TypeUnicast, Protocol: nethelpers.ProtocolDHCP,
	}
	return route
}

func family(a netip.Addr) nethelpers.Family {
	if a.Is6() {
		return nethelpers.FamilyInet6
	}
	return nethelpers.FamilyInet4
}

func runtimeResources(n *node, f facts) []resource.Resource {
	status := runtime.NewMachineStatus()
	s := statusOf(f)
	*status.TypedSpec() = runtime.MachineStatusSpec{Stage: s.stage, Status: runtime.MachineStatusStatus{Ready: s.ready, UnmetConditions: s.unmet}}
	version := runtime.NewVersion()
	*version.TypedSpec() = runtime.VersionSpec{Name: "Talos", Version: n.Release.Version}
	platform := runtime.NewPlatformMetadataSpec(runtime.NamespaceName, runtime.PlatformMetadataID)
	*platform.TypedSpec() = runtime.PlatformMetadataSpec{Platform: n.Machine.Kind, Hostname: n.Machine.Hostname}
	clock := time.NewStatus()
	clock.TypedSpec().Synced = n.Machine.Skew == 0
	cmdline := runtime.NewKernelCmdline()
	cmdline.TypedSpec().Cmdline = strings.Join(append([]string{"talos.platform=" + n.Machine.Kind, "console=ttyS0"}, n.KernelArguments...), " ")
	all := []resource.Resource{status, version, platform, clock, cmdline, runtime.NewSecurityStateSpec(runtime.NamespaceName)}
	if schematic := n.schematic(); schematic != "" {
		extension := runtime.NewExtensionStatus(runtime.NamespaceName, "0")
		extension.TypedSpec().Metadata.Name = "schematic"
		extension.TypedSpec().Metadata.Version = schematic
		extension.TypedSpec().Metadata.Author = "Image Factory"
		extension.TypedSpec().Metadata.Description = "Virtual extension which specifies the schematic of the image built with Image Factory."
		all = append(all, extension)
	}
	for _, service := range servicesOf(f) {
		if !service.running {
			continue
		}
		r := v1alpha1.NewService(service.id)
		*r.TypedSpec() = v1alpha1.ServiceSpec{Running: service.running, Healthy: service.healthy, Unknown: service.unknown}
		all = append(all, r)
	}
	return all
}

func diskResources(n *node) []resource.Resource {
	var all []resource.Resource
	for _, d := range n.Machine.Disks {
		disk := block.NewDisk(block.NamespaceName, path.Base(d.Device))
		*disk.TypedSpec() = block.DiskSpec{
			DevPath: d.Device, Size: d.Size, PrettySize: humanize.Bytes(d.Size), IOSize: 512, SectorSize: 512,
			Serial: d.Serial, BusPath: busPath(d), SubSystem: "/sys/class/block", Transport: "virtio",
		}
		all = append(all, disk)
	}
	if !n.Installed || len(n.Machine.Disks) == 0 {
		return all
	}
	at := n.systemDisk()
	system := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
	*system.TypedSpec() = block.SystemDiskSpec{DiskID: path.Base(at.Device), DevPath: at.Device}
	all = append(all, system)
	const stateSize = 100 << 20
	all = append(all,
		n.volumeStatus("META", 2, 1<<20, block.FilesystemTypeNone),
		n.volumeStatus("STATE", 3, stateSize, block.FilesystemTypeXFS),
		n.volumeStatus("EPHEMERAL", 4, at.Size-min(at.Size, 3*stateSize), block.FilesystemTypeXFS))
	index := 5
	for _, name := range slices.Sorted(maps.Keys(n.Volumes)) {
		if strings.HasPrefix(name, constants.UserVolumePrefix) {
			all = append(all, n.volumeStatus(name, index, 0, block.FilesystemTypeXFS))
			index++
		}
	}
	return all
}

// schematic returns the schematic of the running release, from the boot image or an installer.
func (n *node) schematic() string {
	if n.Release.Image == "" {
		return n.Machine.Schematic
	}
	return schematicOf(n.Release.Image)
}

// shortID returns an identifier in the form of Talos, derived from a machine's ID.
func shortID(id string) string { return strings.ReplaceAll(id, "-", "") }

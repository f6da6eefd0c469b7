package talos

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// hardware returns the hardware and the time of the boot.
func (b *boot) hardware() (Machine, time.Time, error) {
	unlock, err := b.accept()
	if err != nil {
		return Machine{}, time.Time{}, err
	}
	defer unlock()
	return b.node.Machine, b.began, nil
}

// Memory returns the size of the memory. A quarter of it is in use.
func (a *api) Memory(context.Context, *emptypb.Empty) (*machineapi.MemoryResponse, error) {
	m, _, err := a.boot.hardware()
	if err != nil {
		return nil, err
	}
	total := m.memory() / 1024 // the unit is KiB
	return &machineapi.MemoryResponse{Messages: []*machineapi.Memory{{Meminfo: &machineapi.MemInfo{
		Memtotal: total, Memavailable: total * 3 / 4, Memfree: total / 2, Cached: total / 4, Active: total / 8,
	}}}}, nil
}

// SystemStat returns the time of the boot. The processors are idle.
func (a *api) SystemStat(context.Context, *emptypb.Empty) (*machineapi.SystemStatResponse, error) {
	m, began, err := a.boot.hardware()
	if err != nil {
		return nil, err
	}
	idle := time.Since(began).Seconds()
	stat := &machineapi.SystemStat{
		BootTime: uint64(began.Unix()), CpuTotal: &machineapi.CPUStat{Idle: idle * float64(m.cpus())},
		ProcessRunning: 1, SoftIrq: &machineapi.SoftIRQStat{},
	}
	for range m.cpus() {
		stat.Cpu = append(stat.Cpu, &machineapi.CPUStat{Idle: idle})
	}
	return &machineapi.SystemStatResponse{Messages: []*machineapi.SystemStat{stat}}, nil
}

// LoadAvg returns a load of zero.
func (a *api) LoadAvg(context.Context, *emptypb.Empty) (*machineapi.LoadAvgResponse, error) {
	return &machineapi.LoadAvgResponse{Messages: []*machineapi.LoadAvg{{}}}, nil
}

// CPUInfo returns the processors.
func (a *api) CPUInfo(context.Context, *emptypb.Empty) (*machineapi.CPUInfoResponse, error) {
	m, _, err := a.boot.hardware()
	if err != nil {
		return nil, err
	}
	info := &machineapi.CPUsInfo{}
	for i := range m.cpus() {
		info.CpuInfo = append(info.CpuInfo, &machineapi.CPUInfo{
			Processor: uint32(i), VendorId: "GenuineIntel", ModelName: "Simulated", CpuCores: uint32(m.cpus()), CoreId: fmt.Sprint(i),
		})
	}
	return &machineapi.CPUInfoResponse{Messages: []*machineapi.CPUsInfo{info}}, nil
}

// Mounts returns the mounts of an installed machine.
func (a *api) Mounts(context.Context, *emptypb.Empty) (*machineapi.MountsResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	mounts := &machineapi.Mounts{Stats: []*machineapi.MountStat{{Filesystem: "rootfs", MountedOn: "/"}}}
	if b.node.Installed {
		disk := b.node.systemDisk()
		mounts.Stats = append(mounts.Stats, &machineapi.MountStat{
			Filesystem: disk.Device + "4", MountedOn: "/var", Size: disk.Size, Available: disk.Size / 2,
		})
	}
	return &machineapi.MountsResponse{Messages: []*machineapi.Mounts{mounts}}, nil
}

// DiskStats returns the disks, with zero counters.
func (a *api) DiskStats(context.Context, *emptypb.Empty) (*machineapi.DiskStatsResponse, error) {
	m, _, err := a.boot.hardware()
	if err != nil {
		return nil, err
	}
	stats := &machineapi.DiskStats{Total: &machineapi.DiskStat{}}
	for _, d := range m.Disks {
		stats.Devices = append(stats.Devices, &machineapi.DiskStat{Name: path.Base(d.Device)})
	}
	return &machineapi.DiskStatsResponse{Messages: []*machineapi.DiskStats{stats}}, nil
}

// NetworkDeviceStats returns the links, with zero counters.
func (a *api) NetworkDeviceStats(context.Context, *emptypb.Empty) (*machineapi.NetworkDeviceStatsResponse, error) {
	m, _, err := a.boot.hardware()
	if err != nil {
		return nil, err
	}
	stats := &machineapi.NetworkDeviceStats{Total: &machineapi.NetDev{}}
	for _, l := range m.Links {
		stats.Devices = append(stats.Devices, &machineapi.NetDev{Name: l.Name})
	}
	return &machineapi.NetworkDeviceStatsResponse{Messages: []*machineapi.NetworkDeviceStats{stats}}, nil
}

// Processes returns the init process and the running services.
func (a *api) Processes(context.Context, *emptypb.Empty) (*machineapi.ProcessesResponse, error) {
	unlock, err := a.boot.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := &machineapi.Process{Processes: []*machineapi.ProcessInfo{{Pid: 1, State: "S", Command: "init", Executable: "/sbin/init", Args: "/sbin/init"}}}
	for _, s := range servicesOf(a.boot.facts()) {
		if s.running && s.id != "machined" {
			list.Processes = append(list.Processes, &machineapi.ProcessInfo{
				Pid: int32(1000 + len(list.Processes)), Ppid: 1, State: "S", Command: s.id, Executable: "/usr/bin/" + s.id,
			})
		}
	}
	return &machineapi.ProcessesResponse{Messages: []*machineapi.Process{list}}, nil
}

// storageService returns disks, for clients that do not read COSI resources.
type storageService struct {
	storageapi.UnimplementedStorageServiceServer
	boot *boot
}

// Disks returns the machine's disks.
func (s *storageService) Disks(context.Context, *emptypb.Empty) (*storageapi.DisksResponse, error) {
	b := s.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	list := &storageapi.Disks{}
	for _, d := range b.node.Machine.Disks {
		list.Disks = append(list.Disks, &storageapi.Disk{
			DeviceName: d.Device, Size: d.Size, Serial: d.Serial, Type: storageapi.Disk_SSD, Subsystem: "/sys/class/block",
			BusPath: busPath(d), SystemDisk: b.node.Installed && d == b.node.systemDisk(),
		})
	}
	return &storageapi.DisksResponse{Messages: []*storageapi.Disks{list}}, nil
}

func busPath(d Disk) string { return "/virtio/" + strings.TrimPrefix(d.Device, "/dev/") }

// timeService returns how far the clock is off.
type timeService struct {
	timeapi.UnimplementedTimeServiceServer
	boot *boot
}

// Time compares the machine's clock with its time server's.
func (s *timeService) Time(ctx context.Context, _ *emptypb.Empty) (*timeapi.TimeResponse, error) {
	return s.TimeCheck(ctx, &timeapi.TimeRequest{Server: "time.cloudflare.com"})
}

// TimeCheck compares the machine's clock with the named server's.
func (s *timeService) TimeCheck(_ context.Context, in *timeapi.TimeRequest) (*timeapi.TimeResponse, error) {
	unlock, err := s.boot.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return &timeapi.TimeResponse{Messages: []*timeapi.Time{{Server: in.Server, Localtime: timestamppb.New(s.boot.network.now()), Remotetime: timestamppb.Now()}}}, nil
}

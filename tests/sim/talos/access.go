package talos

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

var errNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

// allowed has the roles that may call a method. A method without an entry requires an administrator.
var allowed = func() map[string]role.Set {
	rules := map[string]role.Set{}
	grant := func(roles role.Set, methods string) {
		for _, m := range strings.Fields(methods) {
			rules["/"+m] = roles
		}
	}
	readers := role.MakeSet(role.Admin, role.Operator, role.Reader)
	grant(readers, `cluster.ClusterService/HealthCheck inspect.InspectService/ControllerRuntimeDependencies
		machine.ImageService/List cosi.resource.State/Get cosi.resource.State/List cosi.resource.State/Watch
		storage.StorageService/Disks time.TimeService/Time time.TimeService/TimeCheck`)
	grant(readers, inMachineService(`CPUInfo CPUFreqStats Containers DiskStats DiskUsage Dmesg Events Hostname
		ImageList List LoadAvg Logs LogsContainers Memory Mounts NetworkDeviceStats Netstat Processes ServiceList
		Stats SystemStat Version`))
	grant(role.MakeSet(role.Admin, role.Operator), "machine.ImageService/Pull "+inMachineService(`EtcdAlarmDisarm
		EtcdDefragment ImagePull PacketCapture Reboot Restart ServiceRestart ServiceStart ServiceStop Shutdown`))
	grant(role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup),
		inMachineService("EtcdAlarmList EtcdMemberList EtcdStatus"))
	grant(role.MakeSet(role.Admin, role.Operator, role.EtcdBackup), inMachineService("EtcdSnapshot"))
	grant(role.MakeSet(role.Admin, role.MetaWriter), inMachineService("MetaWrite MetaDelete"))
	grant(role.MakeSet(role.Admin, role.Operator, role.Reader, role.ImageVerifier), "machine.ImageService/Verify")
	// The handlers permit these to a reader only while there is no configuration.
	grant(role.MakeSet(role.Admin, role.Reader), "machine.MachineService/ApplyConfiguration storage.StorageService/BlockDeviceWipe")
	return rules
}()

func inMachineService(methods string) string {
	var full []string
	for _, m := range strings.Fields(methods) {
		full = append(full, "machine.MachineService/"+m)
	}
	return strings.Join(full, " ")
}

func authorize(roles role.Set, method string) error {
	may, listed := allowed[method]
	if !listed {
		may = role.MakeSet(role.Admin)
	}
	if !may.IncludesAny(roles) {
		return errNotAuthorized
	}
	return nil
}

type rolesKey struct{}

func rolesOf(ctx context.Context) role.Set {
	roles, _ := ctx.Value(rolesKey{}).(role.Set)
	return roles
}

// callerRoles returns the roles in the client's certificate, or, for a client that may impersonate
// others, the roles that it names. In maintenance mode every client is a reader.
func callerRoles(ctx context.Context, maintenance bool) role.Set {
	if maintenance {
		return role.MakeSet(role.Reader)
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return role.Zero
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return role.Zero
	}
	roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)
	if roles.Includes(role.Impersonator) {
		md, _ := metadata.FromIncomingContext(ctx)
		if named := md.Get(constants.APIAuthzRoleMetadataKey); len(named) > 0 {
			roles, _ = role.Parse(named)
		}
	}
	return roles
}

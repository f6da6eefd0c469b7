package proxmox

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

const (
	// oldestRelease is the first release that is supported. Earlier ones do not import disk images from a URL
	// (libpve-storage-perl 8.3.6).
	oldestRelease = "8.4"
	// agentPrivileges is the major release that has VM.GuestAgent.Audit in place of
	// VM.Monitor.
	agentPrivileges = 9
)

// vmPrivileges are the privileges that a user needs on virtual machines, in addition to that of the
// guest agent.
var vmPrivileges = []string{
	"VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.HWType",
	"VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.PowerMgmt",
}

// storagePrivileges are the privileges that a user needs on one storage of each content: to create
// disks, to upload and delete CDs with first configurations, and to fetch images.
var storagePrivileges = []struct {
	content    string
	privileges []string
}{
	{"images", []string{"Datastore.AllocateSpace", "Datastore.Audit"}},
	{"iso", []string{"Datastore.Allocate", "Datastore.AllocateTemplate", "Datastore.Audit"}},
	{"import", []string{"Datastore.AllocateTemplate", "Datastore.Audit"}},
}

// parentPaths are paths whose privileges are checked on the objects below them, where a privilege that does not propagate is not granted.
var parentPaths = []string{"/vms", "/sdn/zones/localnetwork"}

// privileges returns the privileges of the user on a path. A value of 0 does not propagate (pve-access-control, API2/AccessControl.pm, permissions).
func (x api) privileges(ctx context.Context, path string) (map[string]any, error) {
	var paths map[string]map[string]any
	err := x.client.Get(ctx, "/access/permissions?path="+url.QueryEscape(path), &paths)
	return paths[path], err
}

// missingPrivileges returns those of some privileges that the user lacks on a path, as text.
func (x api) missingPrivileges(ctx context.Context, path string, needed ...string) (missing []string, err error) {
	has, err := x.privileges(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, privilege := range needed {
		switch propagates, granted := has[privilege]; {
		case !granted:
			missing = append(missing, privilege+" on "+path)
		case formatValue(propagates) == "0" && slices.Contains(parentPaths, path):
			missing = append(missing, privilege+" on "+path+" with Propagate")
		}
	}
	return missing, nil
}

// access compares what a user may do with what the stack needs.
type access struct {
	api
	settings
}

// missing returns every privilege that the user lacks for a Machine of any kind.
func (a access) missing(ctx context.Context, version string, all inventory) (missing []string, err error) {
	agent := "VM.GuestAgent.Audit"
	if majorOf(version) < agentPrivileges {
		agent = "VM.Monitor"
	}
	vms := "/vms"
	if a.options.Pool != "" {
		vms = "/pool/" + a.options.Pool
	}
	check := func(path string, needed ...string) {
		if err != nil {
			return
		}
		var more []string
		more, err = a.missingPrivileges(ctx, path, needed...)
		missing = append(missing, more...)
	}
	check(vms, append(slices.Clone(vmPrivileges), agent)...)
	check("/sdn/zones/localnetwork", "SDN.Use")
	if i := slices.IndexFunc(all, func(i inventoryItem) bool { return i.Type == "node" }); i >= 0 {
		check("/nodes/"+all[i].Node, "Sys.Audit", "Sys.AccessNetwork")
	}
	if err != nil {
		return nil, err
	}
	for _, s := range storagePrivileges {
		more, err := a.missingOnStorages(ctx, all, s.content, s.privileges)
		if err != nil {
			return nil, err
		}
		missing = append(missing, more...)
	}
	slices.Sort(missing)
	return slices.Compact(missing), nil
}

// missingOnStorages returns what the user lacks on the storage for a content on which it
// lacks the least. It is empty where one storage grants everything, or there is none.
func (a access) missingOnStorages(ctx context.Context, all inventory, content string, needed []string) (least []string, err error) {
	var seen []string
	for _, s := range all {
		named := content != "images" || a.defaults.StorageClass == "" || s.Storage == a.defaults.StorageClass
		if !s.has(content) || !named || slices.Contains(seen, s.Storage) {
			continue
		}
		seen = append(seen, s.Storage)
		missing, err := a.missingPrivileges(ctx, "/storage/"+s.Storage, needed...)
		if err != nil {
			return nil, err
		}
		if len(missing) == 0 {
			return nil, nil
		}
		if least == nil || len(missing) < len(least) {
			least = missing
		}
	}
	return least, nil
}

// checkRelease returns a UserError for a release that is too old. A release without a number is accepted.
func checkRelease(release string) error {
	parsed, err := version.ParseGeneric(release)
	if err != nil || parsed.AtLeast(version.MustParseGeneric(oldestRelease)) {
		return nil
	}
	return reconcile.UserError{Reason: "VersionNotSupported", Message: fmt.Sprintf("Proxmox VE %s is not supported: upgrade it to %s or later", release, oldestRelease)}
}

// majorOf returns the major release of a version, or 0 if the version has none.
func majorOf(version string) int {
	number, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(number)
	return n
}

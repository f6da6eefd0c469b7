package proxmox

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// method is a method of the API.
type method struct {
	params schema
	// world methods require no credentials.
	world bool
	// allowed returns an error for callers without the privileges. nil permits every user.
	allowed func(*call) error
	run     func(*call) (any, error)
}

type route struct {
	verb     string
	segments []string
	method   *method
}

// find returns the method of a path, and the values of its variables.
func (s *Server) find(verb, path string) (*method, map[string]string) {
	given := strings.Split(strings.Trim(path, "/"), "/")
	for _, r := range s.routes {
		given := given
		if last := len(r.segments) - 1; r.segments[last] == "{volume}" && len(given) > last {
			given = append(given[:last:last], strings.Join(given[last:], "/")) // a volume ID may contain slashes
		}
		if r.verb != verb || len(r.segments) != len(given) {
			continue
		}
		variables, ok := map[string]string{}, true
		for i, segment := range r.segments {
			value, err := url.PathUnescape(given[i])
			if name, isVariable := strings.CutPrefix(segment, "{"); isVariable {
				variables[strings.TrimSuffix(name, "}")] = value
			} else if err != nil || value != segment {
				ok = false
				break
			}
		}
		if ok {
			return r.method, variables
		}
	}
	return nil, nil
}

// Parameters of many methods.
var (
	onNode    = schema{"node": node().must()}
	onMachine = schema{"node": node().must(), "vmid": vmid().must()}
	onTask    = schema{"node": node().must(), "upid": text().must()}
	onStorage = schema{"node": node().must(), "storage": storage().must()}
	skiplock  = schema{"skiplock": boolean()}
)

// machinePath is the path of a machine.
const machinePath = "/nodes/{node}/qemu/{vmid}"

// adder adds a method to a table.
type adder func(verb, path string, m method)

// table has the simulated methods, with the parameters, types and privileges in the API's own
// description.
func (s *Server) table() []route {
	var routes []route
	add := func(verb, path string, m method) {
		routes = append(routes, route{verb: verb, segments: strings.Split(strings.Trim(path, "/"), "/"), method: &m})
	}
	clusterMethods(add)
	storageMethods(add)
	machineMethods(add)
	powerMethods(add)
	firewallMethods(add)
	return routes
}

func clusterMethods(add adder) {
	add("POST", "/access/ticket", method{world: true, run: createTicket, params: schema{
		"new-format": boolean(), "otp": text(), "password": text().must(), "path": text().atMost(64).needs("privs"), "privs": text().atMost(64).needs("path"),
		"realm": text().atMost(32), "tfa-challenge": text(), "username": text().atMost(64).must(),
	}})
	add("GET", "/access/permissions", method{run: getPermissions, params: schema{"path": text(), "userid": text().atMost(64)}})
	add("GET", "/version", method{run: getVersion})
	add("GET", "/cluster/status", method{run: clusterStatus, allowed: func(c *call) error { return c.demand("/", "Sys.Audit") }})
	add("GET", "/cluster/resources", method{run: clusterResources, params: schema{"type": text().oneOf("vm", "storage", "node", "sdn")}})
	add("GET", "/cluster/nextid", method{run: nextID, params: schema{"vmid": vmid()}})
	add("GET", "/pools", method{run: listPools, params: schema{"poolid": text().with(isPool), "type": text().oneOf("qemu", "lxc", "storage").needs("poolid")}})
	add("POST", "/pools", method{run: createPool, params: schema{"poolid": text().with(isPool).must(), "comment": text()},
		allowed: func(c *call) error { return c.demand("/pool/"+c.params["poolid"], "Pool.Allocate") }})
	add("GET", "/nodes", method{run: listNodes})
	add("GET", "/nodes/{node}/status", method{run: nodeStatus, params: onNode, allowed: func(c *call) error { return c.demand("/nodes/"+c.params["node"], "Sys.Audit") }})
	add("GET", "/nodes/{node}/certificates/info", method{run: certificates, params: onNode})
	add("GET", "/nodes/{node}/version", method{run: getVersion, params: onNode})
	add("GET", "/nodes/{node}/network", method{run: listNetworks, params: merge(onNode, schema{"type": text().oneOf("bridge", "bond", "eth", "alias",
		"vlan", "fabric", "OVSBridge", "OVSBond", "OVSPort", "OVSIntPort", "vnet", "any_bridge", "any_local_bridge", "include_sdn")})})
	add("GET", "/nodes/{node}/tasks", method{run: listTasks, params: merge(onNode, schema{
		"errors": boolean(), "limit": integer().from(0), "since": integer(), "source": text().oneOf("archive", "active", "all"), "start": integer().from(0),
		"statusfilter": text(), "typefilter": text(), "until": integer(), "userfilter": text(), "vmid": vmid(),
	})})
	add("GET", "/nodes/{node}/tasks/{upid}/status", method{run: taskStatus, params: onTask})
	add("GET", "/nodes/{node}/tasks/{upid}/log", method{run: taskLog, params: merge(onTask, schema{"download": boolean(), "limit": integer().from(0), "start": integer().from(0)})})
}

func storageMethods(add adder) {
	sums := []string{"md5", "sha1", "sha224", "sha256", "sha384", "sha512"}
	mayRead := func(c *call) error {
		return c.demandAny("/storage/"+c.params["storage"], "Datastore.Audit", "Datastore.AllocateSpace")
	}
	add("GET", "/nodes/{node}/storage", method{run: listStorages, params: merge(onNode, schema{"content": text(), "enabled": boolean(), "format": boolean(), "storage": storage(), "target": node()})})
	add("GET", "/nodes/{node}/storage/{storage}/status", method{run: storageStatus, params: onStorage, allowed: mayRead})
	add("GET", "/nodes/{node}/storage/{storage}/content", method{run: storageContent, params: merge(onStorage, schema{"content": text(), "vmid": vmid()}), allowed: mayRead})
	add("DELETE", "/nodes/{node}/storage/{storage}/content/{volume}", method{run: deleteVolume, params: merge(onStorage, schema{"volume": text().must(), "delay": integer().from(1).to(30)})})
	add("POST", "/nodes/{node}/storage/{storage}/upload", method{run: upload, allowed: mayUpload, params: merge(onStorage, schema{
		"content": text().oneOf("iso", "vztmpl", "import").must(), "filename": text().atMost(255).must(), "checksum": text().needs("checksum-algorithm"),
		"checksum-algorithm": text().oneOf(sums...).needs("checksum"), "tmpfilename": text(),
	})})
	add("POST", "/nodes/{node}/storage/{storage}/download-url", method{run: downloadURL, allowed: mayDownload, params: merge(onStorage, schema{
		"content": text().oneOf("iso", "vztmpl", "import").must(), "filename": text().atMost(255).must(), "url": text().like(`https?://.*`).must(),
		"checksum": text().needs("checksum-algorithm"), "checksum-algorithm": text().oneOf(sums...).needs("checksum"),
		"compression": text().oneOf("gz", "lzo", "zst", "bz2"), "verify-certificates": boolean(),
	})})
}

func machineMethods(add adder) {
	update := schema{"delete": text().with(isOptionList), "digest": text().atMost(64), "force": boolean(), "revert": text().with(isOptionList), "skiplock": boolean()}
	create := schema{
		"archive": text().atMost(255), "bwlimit": integer().from(0), "force": boolean().needs("archive"), "ha-managed": boolean().newIn(release9),
		"import-working-storage": storage(), "live-restore": boolean(), "pool": text().with(isPool), "start": boolean(), "storage": storage(),
		"unique": boolean().needs("archive"),
	}
	clone := schema{
		"bwlimit": integer().from(0), "description": text(), "format": text().oneOf("raw", "qcow2", "vmdk"), "full": boolean(), "name": dnsName(),
		"newid": vmid().must(), "pool": text().with(isPool), "snapname": text().atMost(40), "storage": storage(), "target": node(),
	}
	disks := []string{"efidisk0", "tpmstate0"}
	for _, bus := range []schema{numbered("ide", maxIDE, rule{}), numbered("scsi", maxSCSI, rule{}), numbered("virtio", maxVirtIO, rule{}), numbered("sata", maxSATA, rule{})} {
		disks = slices.AppendSeq(disks, maps.Keys(bus))
	}
	config := onVM("VM.Audit")
	mayUpdate := func(c *call) error {
		return c.demandAny("/vms/"+c.params["vmid"], "VM.Config.Disk", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network",
			"VM.Config.HWType", "VM.Config.Options", "VM.Config.Cloudinit")
	}
	add("GET", "/nodes/{node}/qemu", method{run: listMachines, params: merge(onNode, schema{"full": boolean()})})
	add("POST", "/nodes/{node}/qemu", method{run: createMachine, params: merge(machineOptions, create, onMachine)})
	add("DELETE", machinePath, method{run: destroyMachine, params: merge(onMachine, skiplock, schema{"purge": boolean(), "destroy-unreferenced-disks": boolean()}), allowed: onVM("VM.Allocate")})
	add("GET", machinePath+"/config", method{run: getConfig, params: merge(onMachine, schema{"current": boolean(), "snapshot": text().atMost(40)}), allowed: config})
	add("GET", machinePath+"/pending", method{run: getPending, params: onMachine, allowed: config})
	add("PUT", machinePath+"/config", method{run: updateConfig(true), params: merge(machineOptions, update, onMachine), allowed: mayUpdate})
	add("POST", machinePath+"/config", method{run: updateConfig(false), params: merge(machineOptions, update, onMachine,
		schema{"background_delay": integer().from(1).to(30), "import-working-storage": storage()}), allowed: mayUpdate})
	add("PUT", machinePath+"/resize", method{run: resizeDisk, allowed: onVM("VM.Config.Disk"), params: merge(onMachine, skiplock, schema{
		"digest": text().atMost(64), "disk": text().oneOf(disks...).must(), "size": text().like(`\+?\d+(\.\d+)?[KMGT]?`).must()})})
	add("POST", machinePath+"/clone", method{run: cloneMachine, params: merge(onMachine, clone)})
	add("POST", machinePath+"/template", method{run: convertToTemplate, params: merge(onMachine, schema{"disk": text().oneOf(disks...)}), allowed: onVM("VM.Allocate")})
}

func powerMethods(add adder) {
	timeout, keep := schema{"timeout": integer().from(0)}, schema{"keepActive": boolean()}
	config, power := onVM("VM.Audit"), onVM("VM.PowerMgmt")
	add("GET", machinePath+"/status/current", method{run: currentStatus, params: onMachine, allowed: config})
	add("POST", machinePath+"/status/start", method{run: startMachine, params: merge(onMachine, skiplock, timeout, schema{"force-cpu": text(), "machine": text().of(machineFormat)}), allowed: power})
	add("POST", machinePath+"/status/stop", method{run: stopMachine, params: merge(onMachine, skiplock, timeout, keep, schema{"overrule-shutdown": boolean()}), allowed: power})
	add("POST", machinePath+"/status/shutdown", method{run: shutdownMachine, params: merge(onMachine, skiplock, timeout, keep, schema{"forceStop": boolean()}), allowed: power})
	add("POST", machinePath+"/status/reset", method{run: resetMachine, params: merge(onMachine, skiplock), allowed: power})
	add("POST", machinePath+"/status/reboot", method{run: rebootMachine, params: merge(onMachine, timeout), allowed: power})
	add("GET", machinePath+"/agent/network-get-interfaces", method{run: networkInterfaces, params: onMachine,
		allowed: func(c *call) error {
			if c.server.major() < release9 {
				return c.demand("/vms/"+c.params["vmid"], "VM.Monitor")
			}
			return c.demandAny("/vms/"+c.params["vmid"], "VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted")
		}})
}

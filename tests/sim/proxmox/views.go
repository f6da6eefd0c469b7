package proxmox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Version and Release identify the simulated Proxmox VE.
const (
	Version = "9.1.3"
	release = "9.1"
)

// Releases of Proxmox VE that change what the stack uses.
const (
	// importOfImages is the first release that takes qcow2, raw and vmdk into the content import: libpve-storage-perl 8.3.6.
	importOfImages = "8.4"
	// release9 replaces VM.Monitor by the privileges VM.GuestAgent.*.
	release9 = 9
)

// major is the simulated major release.
func (s *Server) major() int {
	number, _, _ := strings.Cut(s.options.Version, ".")
	n, _ := strconv.Atoi(number)
	return n
}

// isBefore reports whether the simulated release is older than another one.
func (s *Server) isBefore(release string) bool {
	return version.MustParseGeneric(s.options.Version).LessThan(version.MustParseGeneric(release))
}

func getVersion(c *call) (any, error) {
	return map[string]any{"version": c.server.options.Version, "release": release, "repoid": "e5010dc0b8d5a6a1"}, nil
}

func nodeState(n Node) string {
	if n.Offline {
		return "offline"
	}
	return "online"
}

// nodeView returns a node in a list. Callers without Sys.Audit see only that it exists.
func (c *call) nodeView(n Node) map[string]any {
	view := map[string]any{"id": "node/" + n.Name, "node": n.Name, "type": "node", "status": nodeState(n)}
	if !c.may("/nodes/"+n.Name, "Sys.Audit") || n.Offline {
		return view
	}
	view["maxcpu"], view["maxmem"], view["mem"] = n.CPUs, n.Memory, c.server.memoryUsed(n.Name)
	view["cpu"], view["uptime"], view["maxdisk"], view["disk"], view["level"] = c.server.cpuUsed(n), 86400, 100*gib, 10*gib, ""
	return view
}

func listNodes(c *call) (any, error) {
	list := []any{}
	for _, n := range c.server.options.Nodes {
		list = append(list, c.nodeView(n))
	}
	return list, nil
}

func nodeStatus(c *call) (any, error) {
	n := c.node
	used := c.server.memoryUsed(n.Name)
	return map[string]any{
		"cpu": c.server.cpuUsed(n), "wait": 0, "uptime": 86400, "pveversion": "pve-manager/" + Version + "/e5010dc0b8d5a6a1", "loadavg": []string{"0.01", "0.02", "0.03"},
		"memory":  map[string]any{"total": n.Memory, "used": used, "free": n.Memory - used},
		"cpuinfo": map[string]any{"cpus": n.CPUs, "cores": n.CPUs / 2, "sockets": 1, "model": "Simulated", "mhz": "2400.000", "hvm": "1", "flags": "vmx"},
		"rootfs":  map[string]any{"total": 100 * gib, "used": 10 * gib, "free": 90 * gib, "avail": 90 * gib},
	}, nil
}

func clusterStatus(c *call) (any, error) {
	list := []any{map[string]any{"id": "cluster", "type": "cluster", "name": "simulated", "nodes": len(c.server.options.Nodes), "quorate": 1, "version": 3}}
	for i, n := range c.server.options.Nodes {
		online := 1
		if n.Offline {
			online = 0
		}
		list = append(list, map[string]any{"id": "node/" + n.Name, "type": "node", "name": n.Name, "nodeid": i + 1, "online": online, "local": map[bool]int{true: 1}[i == 0], "ip": fmt.Sprintf("192.0.2.%d", i+1), "level": ""})
	}
	return list, nil
}

func nextID(c *call) (any, error) {
	if want := c.params["vmid"]; want != "" {
		id, _ := strconv.Atoi(want)
		if c.server.machines[id] != nil {
			return nil, badParameter("vmid", "VM %s already exists", want)
		}
		return want, nil
	}
	for id := 100; ; id++ {
		if c.server.machines[id] == nil {
			return strconv.Itoa(id), nil
		}
	}
}

// machineView returns a machine in a list.
func (c *call) machineView(m *machine) map[string]any {
	n, known := c.server.host(m.Node)
	offline := n.Offline || !known
	view := map[string]any{
		"vmid": m.ID, "name": m.Config["name"], "status": "stopped", "maxmem": memoryOf(m.Config), "maxcpu": cpusOf(m.Config),
		"mem": 0, "cpu": 0, "uptime": 0, "disk": 0, "maxdisk": 0, "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0,
	}
	if m.Config["name"] == "" {
		view["name"] = fmt.Sprintf("VM %d", m.ID)
	}
	if m.Running {
		view["status"], view["mem"], view["uptime"] = "running", m.memoryTouched(), int(time.Since(m.Since).Seconds())+1
	}
	if offline {
		view["status"] = "unknown"
	}
	if m.template() {
		view["template"] = 1
	}
	copyOptions(view, m, "tags", "lock")
	return view
}

// copyOptions copies the options that a machine has into a view.
func copyOptions(view map[string]any, m *machine, names ...string) {
	for _, name := range names {
		if m.Config[name] != "" {
			view[name] = m.Config[name]
		}
	}
}

func clusterResources(c *call) (any, error) {
	s, kind := c.server, c.params["type"]
	list := []any{}
	for _, m := range sorted(s.machines) {
		if (kind != "" && kind != "vm") || !c.may("/vms/"+strconv.Itoa(m.ID), "VM.Audit") {
			continue
		}
		view := c.machineView(m)
		if time.Since(m.created) < s.options.Times.Stats || s.forgotten[m.Node] {
			view = map[string]any{"vmid": m.ID, "status": "unknown"}
			copyOptions(view, m, "tags", "lock")
		}
		view["id"], view["type"], view["node"] = fmt.Sprintf("qemu/%d", m.ID), "qemu", m.Node
		if _, is := view["template"]; !is && view["status"] != "unknown" {
			view["template"] = 0
		}
		if m.Pool != "" {
			view["pool"] = m.Pool
		}
		list = append(list, view)
	}
	for _, n := range s.options.Nodes {
		if kind == "" || kind == "node" {
			list = append(list, c.nodeView(n))
		}
		if kind != "" && kind != "storage" {
			continue
		}
		for _, st := range s.options.Storages {
			view := c.storageView(st, n)
			if view == nil {
				continue
			}
			shared := view["shared"]
			list = append(list, map[string]any{
				"id": fmt.Sprintf("storage/%s/%s", n.Name, st.Name), "type": "storage", "storage": st.Name, "node": n.Name, "shared": shared,
				"content": view["content"], "plugintype": st.Type, "maxdisk": view["total"], "disk": view["used"],
				"status": "available", // also of a node that has stopped to answer, for the first five minutes
			})
		}
	}
	return list, nil
}

func sorted(machines map[int]*machine) []*machine {
	var all []*machine
	for _, m := range machines {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *machine) int { return a.ID - b.ID })
	return all
}

func listMachines(c *call) (any, error) {
	list := []any{}
	for _, m := range sorted(c.server.machines) {
		if m.Node == c.node.Name && c.may("/vms/"+strconv.Itoa(m.ID), "VM.Audit") {
			list = append(list, c.machineView(m))
		}
	}
	return list, nil
}

func currentStatus(c *call) (any, error) {
	m, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	view := c.machineView(m)
	view["qmpstatus"], view["ha"] = view["status"], m.haView()
	if m.frozen != "" {
		view["qmpstatus"] = m.frozen // its status is running, because its process runs
	}
	view["cpus"] = number64(m.Config, "vcpus", cpusOf(m.Config))
	if m.Running {
		view["pid"], view["running-machine"], view["running-qemu"] = m.PID, "pc-q35-10.1+pve0", "10.1.2"
	}
	if agent, err := agentFormat.parse("agent", m.Config["agent"]); err == nil && agent["enabled"] == "1" {
		view["agent"] = 1
	}
	return view, nil
}

// storageView returns a storage of a node, or nil if the node lacks it or the caller may not see it.
func (c *call) storageView(st Storage, n Node) map[string]any {
	if st.Nodes != nil && !slices.Contains(st.Nodes, n.Name) {
		return nil
	}
	if c.demandAny("/storage/"+st.Name, "Datastore.Audit", "Datastore.AllocateSpace") != nil {
		return nil
	}
	used := c.server.used(st, n.Name)
	return map[string]any{
		"storage": st.Name, "type": st.Type, "content": strings.Join(st.Content, ","), "shared": map[bool]int{true: 1}[st.Shared], "enabled": 1, "active": 1,
		"total": st.Capacity, "used": used, "avail": st.Capacity - used, "used_fraction": float64(used) / float64(st.Capacity),
	}
}

func listStorages(c *call) (any, error) {
	list := []any{}
	for _, st := range c.server.options.Storages {
		view := c.storageView(st, c.node)
		if view == nil || (c.params["storage"] != "" && c.params["storage"] != st.Name) {
			continue
		}
		if want := splitList(c.params["content"]); len(want) > 0 && !slices.ContainsFunc(want, func(w string) bool { return slices.Contains(st.Content, w) }) {
			continue
		}
		list = append(list, view)
	}
	return list, nil
}

func storageStatus(c *call) (any, error) {
	st, err := c.server.on(c.params["storage"], c.node.Name)
	if err != nil {
		return nil, die("%s", err)
	}
	view := c.storageView(st, c.node)
	delete(view, "storage")
	return view, nil
}

func storageContent(c *call) (any, error) {
	st, err := c.server.on(c.params["storage"], c.node.Name)
	if err != nil {
		return nil, die("%s", err)
	}
	list := []any{}
	for key, v := range c.server.volumes {
		if key.Storage != st.Name || (!st.Shared && key.Node != c.node.Name) || (c.params["content"] != "" && c.params["content"] != v.Content) {
			continue
		}
		if v.VMID != 0 && !c.may("/vms/"+strconv.Itoa(v.VMID), "VM.Audit") || (c.params["vmid"] != "" && c.params["vmid"] != strconv.Itoa(v.VMID)) {
			continue
		}
		_, extension, _ := strings.Cut(key.Name[strings.LastIndex(key.Name, "/")+1:], ".")
		view := map[string]any{"volid": key.id(), "content": v.Content, "size": v.Size, "format": extension, "ctime": 1700000000}
		if extension == "" {
			view["format"] = "raw"
		}
		if v.VMID != 0 {
			view["vmid"] = v.VMID
		}
		list = append(list, view)
	}
	return list, nil
}

func listNetworks(c *call) (any, error) {
	list := []any{}
	for _, b := range c.node.Bridges {
		if kind := c.params["type"]; kind == "" || strings.Contains(kind, "bridge") || kind == "include_sdn" {
			list = append(list, map[string]any{"iface": b, "type": "bridge", "active": 1, "autostart": 1, "method": "manual", "bridge_vlan_aware": 1, "priority": 3})
		}
	}
	return list, nil
}

func listPools(c *call) (any, error) {
	list := []any{}
	for pool := range c.server.pools {
		if (c.params["poolid"] != "" && c.params["poolid"] != pool) || !c.may("/pool/"+pool, "Pool.Audit") {
			continue
		}
		members := []any{}
		for _, m := range sorted(c.server.machines) {
			if m.Pool == pool {
				members = append(members, map[string]any{"id": fmt.Sprintf("qemu/%d", m.ID), "type": "qemu", "vmid": m.ID, "node": m.Node})
			}
		}
		view := map[string]any{"poolid": pool}
		if c.params["poolid"] != "" {
			view["members"] = members
		}
		list = append(list, view)
	}
	if len(list) == 0 && c.params["poolid"] != "" {
		return nil, die("pool '%s' does not exist", c.params["poolid"])
	}
	return list, nil
}

func createPool(c *call) (any, error) {
	pool := c.params["poolid"]
	if c.server.pools[pool] {
		return nil, die("create pool failed: pool '%s' already exists", pool)
	}
	c.server.pools[pool] = true
	return nil, nil
}

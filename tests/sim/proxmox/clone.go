package proxmox

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func cloneMachine(c *call) (any, error) {
	s := c.server
	pool, target, storage, newName := c.params["pool"], c.params["target"], c.params["storage"], c.params["name"]
	newID, _ := strconv.Atoi(c.params["newid"])
	if err := c.mayClone(newID, pool); err != nil {
		return nil, err
	}
	source, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	if target == "" {
		target = c.node.Name
	} else if n, known := s.host(target); !known || n.Offline {
		return nil, die("no such cluster node '%s'", target)
	}
	if err := source.unlocked(); err != nil {
		return nil, die("%s", err)
	}
	full := !source.template()
	if v, given := c.params["full"]; given {
		full = v == "1"
	}
	if err := c.checkClone(source, target, storage, full); err != nil {
		return nil, err
	}
	if m := s.machines[newID]; m != nil && m.Node == c.node.Name {
		return nil, die("unable to create VM %d: config file already exists", newID)
	}
	node := c.node.Name
	if s.machines[newID] != nil { // the call looks at its host only
		return s.fork(c, "qmclone", strconv.Itoa(source.ID), 0, 0, func(*task) error {
			return fmt.Errorf("close (rename) atomic file '/etc/pve/nodes/%s/qemu-server/%d.conf' failed: File exists", node, newID)
		}), nil
	}
	// The task begins at once and claims the VMID.
	s.machines[newID] = &machine{ID: newID, Node: c.node.Name, Config: map[string]string{"lock": "clone"}, created: time.Now()}
	took := time.Duration(0)
	if full {
		took = s.options.Times.Copy
	}
	description, hasDescription := c.params["description"]
	upid := s.fork(c, "qmclone", strconv.Itoa(source.ID), newID, took, func(t *task) error {
		source, err := s.again(node, source.ID)
		var config map[string]string
		if err == nil {
			config, err = s.copyOf(t, source, newID, storage, full)
		}
		if err != nil {
			delete(s.machines, newID)
			return fmt.Errorf("clone failed: %w", err)
		}
		config["name"] = fmt.Sprintf("Copy-of-VM-%s", source.Config["name"])
		if newName != "" {
			config["name"] = newName
		}
		if hasDescription {
			config["description"] = description
		}
		m := s.machines[newID]
		m.Config, m.Pool, m.Node, m.Firewall = config, pool, target, maps.Clone(source.Firewall)
		return nil
	})
	s.tasks[upid].undo = func() { delete(s.machines, newID) }
	return upid, nil
}

func (c *call) mayClone(newID int, pool string) error {
	if err := c.demand("/vms/"+c.params["vmid"], "VM.Clone"); err != nil {
		return err
	}
	if pool != "" && !c.server.pools[pool] {
		return forbidden("pool '" + pool + "' does not exist")
	}
	return c.demandVM(newID, pool, "VM.Allocate")
}

func (c *call) checkClone(source *machine, target, storage string, full bool) error {
	if storage != "" && !full {
		return die("parameter 'storage' not allowed for linked clones")
	}
	if !full && !source.template() {
		return die("Linked clone feature is not supported for '%s'", source.Config["name"])
	}
	for _, name := range drives(source.Config) {
		d, err := parseDrive(name, source.Config[name])
		if err != nil || d["file"] == "none" || d["file"] == "cdrom" {
			continue
		}
		on, _, _ := strings.Cut(d["file"], ":")
		st, err := c.server.on(on, source.Node)
		if err != nil {
			return die("%s", err)
		}
		if target != source.Node && !st.Shared {
			return die("can't clone VM to node '%s' (VM uses local storage)", target)
		}
		if d.cdrom() {
			continue
		}
		to := on
		if storage != "" {
			to = storage
		}
		if err := c.demand("/storage/"+to, "Datastore.AllocateSpace"); err != nil {
			return err
		}
	}
	if storage == "" {
		return nil
	}
	st, err := c.server.on(storage, source.Node)
	if err != nil {
		return die("%s", err)
	}
	if !slices.Contains(st.Content, "images") {
		return badParameter("storage", "storage '%s' does not support vm images", storage)
	}
	if target != source.Node && !st.Shared {
		return die("can't clone to non-shared storage '%s'", storage)
	}
	return nil
}

// copyOf returns the configuration of a clone, and creates its disks.
func (s *Server) copyOf(t *task, source *machine, id int, storage string, full bool) (config map[string]string, err error) {
	config = maps.Clone(source.Config)
	for _, option := range []string{"template", "lock"} {
		delete(config, option)
	}
	var made []volumeKey
	defer func() {
		if err != nil {
			for _, key := range made {
				delete(s.volumes, key)
			}
		}
	}()
	for name, value := range source.Config {
		switch {
		case strings.HasPrefix(name, "unused"):
			delete(config, name)
		case strings.HasPrefix(name, "net"):
			n, err := nicFormat.parse(name, value)
			if err == nil {
				config[name] = printNIC(name, strings.Replace(value, n["model"]+"="+n["macaddr"], n["model"], 1))
			}
		case driveName.MatchString(name):
			key, copied, err := s.copyDrive(source, id, name, value, storage, full)
			if err != nil {
				return nil, err
			}
			if key != nil {
				made = append(made, *key)
				t.print("create full clone of drive %s", name)
			}
			config[name] = copied
		}
	}
	config["smbios1"], config["vmgenid"] = "uuid="+newUUID(), newUUID()
	config["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
	return config, nil
}

func (s *Server) copyDrive(source *machine, id int, name, value, storage string, full bool) (*volumeKey, string, error) {
	d, err := parseDrive(name, value)
	if err != nil {
		return nil, "", err
	}
	if d.cdrom() && !d.cloudInit() {
		return nil, value, nil
	}
	from, v, err := s.volume(d["file"], source.Node)
	if err != nil {
		return nil, "", err
	}
	to := from.Storage
	if storage != "" {
		to = storage
	}
	st, err := s.on(to, source.Node)
	if err != nil {
		return nil, "", err
	}
	newName := s.diskName(st, source.Node, id)
	if d.cloudInit() {
		newName = strings.ReplaceAll(from.Name, strconv.Itoa(source.ID), strconv.Itoa(id))
	}
	clone := *v
	clone.VMID, clone.Parent = id, ""
	if !full && !d.cloudInit() {
		clone.Parent, newName = from.id(), st.linkedName(from.Name, newName)
	}
	key, err := s.allocate(st, source.Node, newName, &clone)
	if err != nil {
		return nil, "", err
	}
	d["file"] = key.id()
	return &key, d.print(), nil
}

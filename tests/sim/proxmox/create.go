package proxmox

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// claimed returns the error about a VMID in use.
func (s *Server) claimed(id int) error {
	if m := s.machines[id]; m != nil {
		return fmt.Errorf("VM %d already exists on node '%s'", id, m.Node)
	}
	return nil
}

func createMachine(c *call) (any, error) {
	s, id := c.server, c.id()
	c.take("vmid")
	c.take("node")
	pool, start := c.take("pool"), c.take("start") == "1"
	for _, ignored := range []string{"storage", "bwlimit", "force", "unique", "ha-managed", "live-restore", "import-working-storage", "archive"} {
		c.take(ignored)
	}
	if pool != "" && !s.pools[pool] {
		return nil, forbidden("pool '" + pool + "' does not exist")
	}
	if start {
		if err := c.demandVM(id, pool, "VM.PowerMgmt"); err != nil {
			return nil, err
		}
	}
	if c.demandVM(id, pool, "VM.Allocate") != nil {
		return nil, forbidden("")
	}
	config := maps.Clone(c.params)
	if err := c.checkConfig(id, pool, config, nil); err != nil {
		return nil, err
	}
	if err := s.claimed(id); err != nil {
		return nil, die("unable to create VM %d - %s", id, err)
	}
	// The VMID is claimed at once, and the configuration is written later.
	s.machines[id] = &machine{ID: id, Node: c.node.Name, Config: map[string]string{"lock": "create"}, created: time.Now()}
	copies := s.options.Times.Copy * time.Duration(strings.Count(strings.Join(slices.Collect(maps.Values(config)), ";"), "import-from="))
	upid := s.fork(c, "qmcreate", strconv.Itoa(id), id, copies, func(t *task) error {
		if err := c.create(t, id, pool, config); err != nil {
			delete(s.machines, id)
			return fmt.Errorf("unable to create VM %d - %w", id, err)
		}
		if start {
			// A created machine stays even if its start fails.
			if err := s.start(t, s.machines[id]); err != nil {
				t.print("%s", err)
			}
		}
		return nil
	})
	s.tasks[upid].undo = func() { delete(s.machines, id) }
	return upid, nil
}

// create does the work of the task of a creation. It checks the privilege for tags while the machine is in no pool.
func (c *call) create(t *task, id int, pool string, config map[string]string) error {
	s := c.server
	m := s.machines[id]
	if m == nil {
		return fmt.Errorf("no lock found trying to remove 'create'  lock") //nolint:perfsprint // Proxmox VE's words
	}
	if config["tags"] != "" && s.major() >= release9 {
		if err := c.demand("/vms/"+strconv.Itoa(id), "VM.Config.Options"); err != nil {
			return err
		}
	}
	if _, err := s.makeDrives(t, m.Node, id, config); err != nil {
		return err
	}
	if config["boot"] == "" {
		config["boot"] = "order=" + strings.Join(defaultBoot(config), ";")
	}
	if !strings.Contains(config["smbios1"], "uuid=") {
		config["smbios1"] = strings.TrimPrefix(config["smbios1"]+",uuid="+newUUID(), ",")
	}
	if config["vmgenid"] == "" || config["vmgenid"] == "1" {
		config["vmgenid"] = newUUID()
	}
	config["meta"] = fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", time.Now().Unix())
	if config["tags"] != "" {
		config["tags"] = uniqueTags(config["tags"])
	}
	m.Config, m.Pool = config, pool
	return nil
}

// uniqueTags returns tags as Proxmox VE stores them.
func uniqueTags(tags string) string {
	all := splitList(strings.ToLower(tags))
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ";")
}

func defaultBoot(config map[string]string) []string {
	var order []string
	for _, name := range drives(config) {
		d, err := parseDrive(name, config[name])
		if err == nil && !d.cdrom() && driveName.MatchString(name) && bootForm.MatchString(name) {
			order = append(order, name)
			break
		}
	}
	if config["net0"] != "" {
		order = append(order, "net0")
	}
	return order
}

// checkConfig rejects options that the caller may not set and invalid configurations, and completes
// network interfaces. existing is nil for a new machine.
func (c *call) checkConfig(id int, pool string, config map[string]string, existing *machine) error {
	for _, name := range slices.Sorted(maps.Keys(config)) {
		if err := c.mayConfigure(id, pool, name, config[name], existing == nil); err != nil {
			return err
		}
		if strings.HasPrefix(name, "net") && machineOptions[name].properties != nil {
			config[name] = printNIC(name, config[name])
		}
	}
	for _, name := range drives(config) {
		if err := c.checkDrive(name, config[name]); err != nil {
			return err
		}
	}
	memory, balloon := memoryOf(config), number64(config, "balloon", 0)<<20
	if existing != nil {
		all := merge2(existing.wanted(), config)
		memory, balloon = memoryOf(all), number64(all, "balloon", 0)<<20
	}
	if balloon > memory && config["balloon"]+config["memory"] != "" {
		return die("balloon value too large (must be smaller than assigned memory)")
	}
	return c.checkBoot(config, existing)
}

// checkBoot rejects a boot order with devices that a machine lacks. Proxmox VE accepts any boot order
// for a new machine.
func (c *call) checkBoot(config map[string]string, existing *machine) error {
	if existing == nil || config["boot"] == "" {
		return nil
	}
	boot, err := bootFormat.parse("boot", config["boot"])
	if err != nil {
		return die("%s", err)
	}
	has := merge2(existing.wanted(), config)
	for _, device := range splitList(boot["order"]) {
		if has[device] == "" {
			return die("invalid bootorder: device '%s' does not exist'", device)
		}
	}
	return nil
}

func (c *call) checkDrive(name, value string) error {
	d, err := parseDrive(name, value)
	if err != nil {
		return badParameter(name, "unable to parse drive options")
	}
	storage, rest, hasStorage := strings.Cut(d["file"], ":")
	isNew := newDisk.MatchString(d["file"])
	if d["import-from"] != "" && (!isNew || rest != "0") {
		return badParameter(name, "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>")
	}
	if !hasStorage {
		return nil
	}
	st, err := c.server.on(storage, c.node.Name)
	if err != nil {
		return die("%s", err)
	}
	switch {
	case isNew:
		if err := c.demand("/storage/"+storage, "Datastore.AllocateSpace"); err != nil {
			return err
		}
		if !slices.Contains(st.Content, "images") {
			return badParameter("storage", "storage '%s' does not support vm images", storage)
		}
	case rest == "cloudinit":
	case strings.HasPrefix(rest, "iso/") && !d.cdrom():
		return badParameter(name, "explicit 'media=cdrom' is required for iso images")
	default:
		return c.demandAny("/storage/"+storage, "Datastore.AllocateSpace", "Datastore.Audit")
	}
	return nil
}

// optionPrivileges are the privileges that setting an option requires.
var optionPrivileges = func() map[string]string {
	all := map[string]string{}
	for privilege, options := range map[string]string{
		"VM.Config.CPU":    "cores sockets cpu cpulimit cpuunits vcpus numa smp affinity",
		"VM.Config.Memory": "memory balloon shares hugepages keephugepages allow-ksm",
		"VM.Config.HWType": "acpi bios hotplug kvm machine scsihw smbios1 tablet vga watchdog audio0 vmgenid arch rng0",
		"VM.Config.Options": "agent autostart bootdisk boot name onboot ostype protection reboot startdate startup tags tdf template description " +
			"localtime keyboard hookscript migrate_downtime migrate_speed spice_enhancements vmstatestorage freeze",
		"VM.Config.Cloudinit": "cicustom cipassword citype ciuser nameserver searchdomain sshkeys ciupgrade",
	} {
		for option := range strings.FieldsSeq(options) {
			all[option] = privilege
		}
	}
	return all
}()

func (c *call) mayConfigure(id int, pool, option, value string, isNew bool) error {
	switch {
	case c.user.user == "root@pam" && c.user.token == "", option == "tags" && isNew, strings.HasPrefix(option, "unused"), strings.HasPrefix(option, "serial"):
		return nil
	case driveName.MatchString(option):
		if isNew {
			return nil
		}
		if d, err := parseDrive(option, value); err == nil && d.cdrom() {
			return c.demandVM(id, pool, "VM.Config.CDROM")
		}
		return c.demandVM(id, pool, "VM.Config.Disk")
	case strings.HasPrefix(option, "net"):
		return c.mayConnect(id, pool, option, value)
	case strings.HasPrefix(option, "ipconfig") || optionPrivileges[option] == "VM.Config.Cloudinit":
		if c.demandVM(id, pool, "VM.Config.Network") == nil {
			return nil
		}
		return c.demandVM(id, pool, "VM.Config.Cloudinit")
	case optionPrivileges[option] != "":
		return c.demandVM(id, pool, optionPrivileges[option])
	default:
		return die("only root can set '%s' config", option)
	}
}

func (c *call) mayConnect(id int, pool, option, value string) error {
	if err := c.demandVM(id, pool, "VM.Config.Network"); err != nil {
		return err
	}
	n, err := nicFormat.parse(option, value)
	if err != nil || n["bridge"] == "" {
		return nil //nolint:nilerr // an interface that is being removed has no value
	}
	path := "/sdn/zones/localnetwork/" + n["bridge"]
	if n["tag"] != "" {
		path += "/" + n["tag"]
	}
	return c.demand(path, "SDN.Use")
}

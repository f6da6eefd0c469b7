package proxmox

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// changes are the requested changes of a configuration.
type changes struct {
	set    map[string]string
	remove []string
	revert []string
	digest string
	force  bool
}

// updateConfig changes a configuration: at once if sync is set, or else in a task. Changes that a
// running machine cannot apply remain pending.
func updateConfig(sync bool) func(*call) (any, error) {
	return func(c *call) (any, error) {
		ch, err := c.changes()
		if err != nil {
			return nil, err
		}
		m, err := c.machineOf()
		if err != nil {
			return nil, err
		}
		if err := c.checkConfig(m.ID, m.Pool, ch.set, m); err != nil {
			return nil, err
		}
		for _, option := range ch.remove {
			if err := c.mayConfigure(m.ID, m.Pool, option, m.Config[option], false); err != nil {
				return nil, err
			}
		}
		s, name, id := c.server, c.node.Name, m.ID
		early := func(m *machine) error {
			if ch.digest != "" && ch.digest != digest(m.Config, m.Pending) {
				return fmt.Errorf("checksum mismatch (file change by other user?)") //nolint:perfsprint // Proxmox VE's words
			}
			return m.unlocked()
		}
		if err := early(m); err != nil {
			return nil, die("%s", err)
		}
		work := func(t *task) error {
			m, err := s.again(name, id)
			if err != nil {
				return err
			}
			if err := early(m); err != nil {
				return err
			}
			return s.change(t, m, ch)
		}
		if sync {
			if err := work(&task{}); err != nil {
				return nil, die("%s", err)
			}
			return nil, nil
		}
		return s.fork(c, "qmconfig", strconv.Itoa(id), id, 0, work), nil
	}
}

func (c *call) changes() (changes, error) {
	c.take("vmid")
	c.take("node")
	ch := changes{digest: c.take("digest"), force: c.take("force") == "1", remove: splitList(c.take("delete")), revert: splitList(c.take("revert"))}
	for _, ignored := range []string{"skiplock", "background_delay", "import-working-storage"} {
		if c.take(ignored) != "" && ignored == "skiplock" {
			return ch, badParameter("skiplock", "Only root may use this option.")
		}
	}
	ch.set = maps.Clone(c.params)
	if len(ch.set)+len(ch.remove)+len(ch.revert) == 0 {
		return ch, die("no options specified")
	}
	for _, option := range ch.remove {
		if _, known := machineOptions[option]; !known {
			return ch, badParameter("delete", "unknown option '%s'", option)
		}
		if _, also := ch.set[option]; also {
			return ch, badParameter("delete", "you can't use '-%s' and -delete %s' at the same time", option, option)
		}
	}
	return ch, nil
}

// change applies changes to a configuration, and adds the others to the pending ones.
func (s *Server) change(t *task, m *machine, ch changes) error {
	err := m.checkCloudInit(ch.set) // before the deletions
	for _, option := range ch.revert {
		delete(m.Pending, option)
	}
	for _, option := range ch.remove {
		if driveName.MatchString(option) && m.Config["protection"] == "1" {
			return fmt.Errorf("can't remove drive '%s' - protection mode enabled", option)
		}
		s.removeOption(m, option, ch.force)
	}
	fresh := map[string]string{}
	for name, value := range ch.set {
		if driveName.MatchString(name) {
			fresh[name] = value
		}
	}
	if err == nil {
		_, err = s.makeDrives(t, m.Node, m.ID, fresh)
	}
	if err != nil {
		m.setPendingAll(ch.set)
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(ch.set)) {
		value := ch.set[name]
		switch {
		case fresh[name] != "" && m.Running && m.Config[name] == "" && !(m.canHotplug("disk") && hotplugged.MatchString(name)):
			m.setPending(name, fresh[name])
		case fresh[name] != "":
			s.attach(m, name, fresh[name])
		case name == "tags":
			m.Config[name] = uniqueTags(value)
			delete(m.Pending, name)
		case m.Running && !s.hotplugs(m, name, value):
			m.setPending(name, value)
		default:
			m.Config[name] = value
			delete(m.Pending, name)
		}
	}
	if !m.Running {
		m.applyPending()
	}
	return nil
}

// checkCloudInit returns an error if a change adds a second cloud-init drive.
func (m *machine) checkCloudInit(set map[string]string) error {
	for _, name := range drives(set) {
		if d, err := parseDrive(name, set[name]); err != nil || !strings.HasSuffix(d["file"], ":cloudinit") {
			continue
		}
		for _, config := range []map[string]string{m.Config, m.Pending, set} {
			for _, other := range drives(config) {
				d, err := parseDrive(other, config[other])
				if err == nil && other != name && (d.cloudInit() || strings.HasSuffix(d["file"], ":cloudinit")) {
					return fmt.Errorf("%s - cloud-init drive is already attached at '%s'", name, other)
				}
			}
		}
	}
	return nil
}

// setPendingAll leaves the options of a change that fails at a drive pending, except for its drives: Proxmox VE writes one option after the other, in any order.
func (m *machine) setPendingAll(set map[string]string) {
	for name, value := range set {
		if !driveName.MatchString(name) {
			m.setPending(name, value)
		}
	}
}

func (m *machine) setPending(name, value string) {
	if m.Config[name] == value {
		delete(m.Pending, name)
		return
	}
	if m.Pending == nil {
		m.Pending = map[string]string{}
	}
	m.Pending[name] = value
}

// hotplugged are the drives that can be hot-plugged: PVE::QemuServer plugs in SCSI and virtio disks, if the option hotplug has disk.
// It changes the medium of an existing CD drive on any bus.
var hotplugged = regexp.MustCompile(`^(scsi|virtio)\d+$`)

// hotplugs reports whether a running machine applies an option at once.
func (s *Server) hotplugs(m *machine, name, value string) bool {
	switch {
	case slices.Contains(fastOptions, name):
		return true
	case name == "memory":
		more := memoryOf(map[string]string{"memory": value}) - m.Memory
		if !m.canHotplug("memory") || m.Config["numa"] != "1" || more < 0 {
			return false
		}
		m.Memory += more
		return true
	case name == "vcpus":
		return m.canHotplug("cpu")
	case strings.HasPrefix(name, "net"):
		return m.canHotplug("network")
	default:
		return false
	}
}

// canHotplug reports whether the option hotplug of a machine has a feature (QemuServer.pm, parse_hotplug_features).
func (m *machine) canHotplug(feature string) bool {
	features := m.Config["hotplug"]
	if features == "" || features == "1" {
		features = "network,disk,usb"
	}
	return slices.Contains(splitList(features), feature)
}

// attach adds a drive to a configuration. Its earlier volume becomes unused, unless it is a CD.
func (s *Server) attach(m *machine, name, value string) {
	if old := m.Config[name]; old != "" && old != value {
		s.release(m, name, false)
	}
	m.Config[name] = value
	delete(m.Pending, name)
}

// release detaches the volume of a drive.
func (s *Server) release(m *machine, name string, destroy bool) {
	d, err := parseDrive(name, m.Config[name])
	if err != nil {
		return
	}
	key, v, err := s.volume(d["file"], m.Node)
	if err != nil || v.VMID != m.ID {
		return
	}
	if destroy || d.cloudInit() {
		delete(s.volumes, key)
		return
	}
	for n := range maxUnused {
		if slot := "unused" + strconv.Itoa(n); m.Config[slot] == "" {
			m.Config[slot] = key.id()
			return
		}
	}
}

func (s *Server) removeOption(m *machine, option string, force bool) {
	switch {
	case strings.HasPrefix(option, "unused"):
		if key, v, err := s.volume(m.Config[option], m.Node); err == nil && v.VMID == m.ID {
			delete(s.volumes, key)
		}
	case driveName.MatchString(option):
		s.release(m, option, force)
	case m.Running && !s.hotplugs(m, option, ""):
		if m.Config[option] != "" {
			m.setPending(option, "")
		}
		return
	}
	delete(m.Config, option)
	delete(m.Pending, option)
}

func resizeDisk(c *call) (any, error) {
	s, name, size, want := c.server, c.params["disk"], c.params["size"], c.params["digest"]
	m, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	node, id := m.Node, m.ID
	return s.fork(c, "resize", strconv.Itoa(id), id, 0, func(*task) error {
		m, err := s.again(node, id)
		if err != nil {
			return err
		}
		if want != "" && want != digest(m.Config, m.Pending) {
			return fmt.Errorf("checksum mismatch (file change by other user?)") //nolint:perfsprint // Proxmox VE's words
		}
		if err := m.unlocked(); err != nil {
			return err
		}
		return s.resize(c, m, name, size)
	}), nil
}

func (s *Server) resize(c *call, m *machine, name, size string) error {
	if m.Config[name] == "" {
		return fmt.Errorf("disk '%s' does not exist", name)
	}
	d, err := parseDrive(name, m.Config[name])
	if err != nil {
		return err
	}
	if d.cdrom() {
		return fmt.Errorf("you can't resize a cdrom") //nolint:perfsprint // Proxmox VE's words
	}
	key, v, err := s.volume(d["file"], m.Node)
	if err != nil {
		return err
	}
	if err := c.demand("/storage/"+key.Storage, "Datastore.AllocateSpace"); err != nil {
		return err
	}
	bytes, _ := parseSize(strings.TrimPrefix(size, "+"))
	if strings.HasPrefix(size, "+") {
		bytes += v.Size
	}
	if bytes < v.Size {
		return fmt.Errorf("shrinking disks is not supported") //nolint:perfsprint // Proxmox VE's words
	}
	st, err := s.on(key.Storage, m.Node)
	if err != nil {
		return err
	}
	if s.used(st, m.Node)+bytes-v.Size > st.Capacity {
		return fmt.Errorf("lvextend '%s' error: Insufficient free space", key.Name)
	}
	v.Size, d["size"] = bytes, formatSize(bytes)
	m.Config[name] = d.print()
	return nil
}

// convertToTemplate converts a machine into a template.
func convertToTemplate(c *call) (any, error) {
	m, err := c.machineOf()
	switch {
	case err != nil:
		return nil, err
	case m.template():
		return nil, die("you can't convert a template to a template")
	case m.Running:
		return nil, die("you can't convert a VM to template if VM is running")
	}
	s, node, id := c.server, m.Node, m.ID
	return s.fork(c, "qmtemplate", strconv.Itoa(id), id, time.Duration(0), func(*task) error {
		m, err := s.again(node, id)
		if err != nil {
			return err
		}
		m.Config["template"] = "1"
		return s.becomeBases(m)
	}), nil
}

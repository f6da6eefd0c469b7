package proxmox

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// machine is a virtual machine.
type machine struct {
	ID         int
	Node, Pool string
	// Config is the stored configuration. Pending has the changes for the next start, where an empty
	// value deletes an option.
	Config, Pending map[string]string
	// Firewall has the options of its firewall.
	Firewall    map[string]string
	Running     bool
	Since       time.Time
	Starts, PID int
	// Memory is the memory that it was started with, in bytes.
	Memory int64
	// guest is the running guest.
	guest *Guest
	// booted is whether the guest agent answers.
	booted bool
	// ha is whether high availability manages it.
	ha bool
	// haFailed is whether high availability could not start it, and leaves it to an administrator.
	haFailed bool
	// created is the time of its creation.
	created time.Time
	// frozen is the run state of QEMU while it does not execute the guest, or empty.
	frozen string
}

// Options that take effect on a running machine at once.
var fastOptions = []string{
	"lock", "migrate_downtime", "migrate_speed", "name", "onboot", "protection", "shares", "startup", "description", "vmstatestorage", "hookscript", "tags",
}

var driveName = regexp.MustCompile(`^(ide|sata|scsi|virtio|efidisk|tpmstate)\d+$`)

// drives returns the names of the drives in a configuration, sorted.
func drives(config map[string]string) []string {
	var names []string
	for name := range config {
		if driveName.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, compareNumbered)
	return names
}

// compareNumbered sorts scsi2 before scsi10.
func compareNumbered(a, b string) int {
	na, nb := strings.TrimRight(a, "0123456789"), strings.TrimRight(b, "0123456789")
	if na != nb {
		return strings.Compare(na, nb)
	}
	ia, _ := strconv.Atoi(a[len(na):])
	ib, _ := strconv.Atoi(b[len(nb):])
	return ia - ib
}

// drive is the property string of a drive.
type drive map[string]string

func parseDrive(name, value string) (drive, error) {
	return driveFormats[strings.TrimRight(name, "0123456789")].parse(name, value)
}

func (d drive) cdrom() bool { return d["media"] == "cdrom" }

func (d drive) cloudInit() bool {
	return d.cdrom() && strings.Contains(d["file"], "-cloudinit")
}

// print formats a drive with its file first and its size last.
func (d drive) print() string {
	parts := []string{d["file"]}
	for _, key := range slices.Sorted(maps.Keys(d)) {
		if key != "file" && key != "size" {
			parts = append(parts, key+"="+d[key])
		}
	}
	if d["size"] != "" {
		parts = append(parts, "size="+d["size"])
	}
	return strings.Join(parts, ",")
}

// printNIC formats a network interface, with a random MAC address if it has none.
func printNIC(name, value string) string {
	n, err := nicFormat.parse(name, value)
	if err != nil {
		return value
	}
	if n["macaddr"] == "" {
		n["macaddr"] = fmt.Sprintf("BC:24:11:%02X:%02X:%02X", rand.IntN(256), rand.IntN(256), rand.IntN(256))
	}
	parts := []string{n["model"] + "=" + strings.ToUpper(n["macaddr"])}
	for _, key := range slices.Sorted(maps.Keys(n)) {
		if key != "model" && key != "macaddr" {
			parts = append(parts, key+"="+n[key])
		}
	}
	return strings.Join(parts, ",")
}

// digest returns the digest of a configuration.
func digest(config, pending map[string]string) string {
	var b strings.Builder
	for _, section := range []map[string]string{config, pending} {
		for _, key := range slices.Sorted(maps.Keys(section)) {
			b.WriteString(key + ": " + section[key] + "\n")
		}
		b.WriteString("[PENDING]\n")
	}
	sum := sha1.Sum([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// wanted returns the configuration with its pending changes.
func (m *machine) wanted() map[string]string {
	config := maps.Clone(m.Config)
	for key, value := range m.Pending {
		if config[key] = value; value == "" {
			delete(config, key)
		}
	}
	return config
}

// applyPending applies the pending changes to the configuration.
func (m *machine) applyPending() {
	m.Config, m.Pending = m.wanted(), nil
}

// typed encodes options as JSON: numbers and booleans as numbers.
func typed(config map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range config {
		out[key] = value
		if k := machineOptions[key].kind; k == kindInteger || k == kindBoolean {
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				out[key] = n
			}
		}
	}
	return out
}

func number64(config map[string]string, key string, otherwise int64) int64 {
	n, err := strconv.ParseInt(config[key], 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// memoryOf returns the memory in a configuration, in bytes.
func memoryOf(config map[string]string) int64 {
	current := strings.TrimPrefix(config["memory"], "current=")
	n, err := strconv.ParseInt(current, 10, 64)
	if err != nil {
		n = 512
	}
	return n << 20
}

func cpusOf(config map[string]string) int64 {
	return number64(config, "cores", 1) * number64(config, "sockets", 1)
}

func (m *machine) template() bool { return m.Config["template"] == "1" }

// machineOf returns the machine of a call, or Proxmox VE's error if its node does not have it.
func (c *call) machineOf() (*machine, error) {
	m := c.server.machines[c.id()]
	if m == nil || m.Node != c.node.Name {
		return nil, die("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", c.node.Name, c.id())
	}
	return m, nil
}

// again looks up a task's machine again, because it may have been deleted.
func (s *Server) again(node string, id int) (*machine, error) {
	m := s.machines[id]
	if m == nil || m.Node != node {
		return nil, fmt.Errorf("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", node, id) //nolint:staticcheck // Proxmox VE's words
	}
	return m, nil
}

func (m *machine) unlocked() error {
	if lock := m.Config["lock"]; lock != "" {
		return fmt.Errorf("VM is locked (%s)", lock)
	}
	return nil
}

func getConfig(c *call) (any, error) {
	m, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	config := m.wanted()
	if c.flag("current") {
		config = m.Config
	}
	out := typed(config)
	out["digest"] = digest(m.Config, m.Pending)
	return out, nil
}

func getPending(c *call) (any, error) {
	m, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	// The digest is in the configuration too (PVE::GuestHelpers, config_with_pending_array).
	items := []map[string]any{{"key": "digest", "value": digest(m.Config, m.Pending)}}
	for _, key := range slices.Sorted(maps.Keys(merge2(m.Config, m.Pending))) {
		item := map[string]any{"key": key}
		if v, ok := m.Config[key]; ok {
			item["value"] = v
		}
		if v, ok := m.Pending[key]; ok && v != "" {
			item["pending"] = v
		} else if ok {
			item["delete"] = 1
		}
		items = append(items, item)
	}
	return items, nil
}

func merge2(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// newUUID returns a random UUID in the form of Proxmox VE.
func newUUID() string { return uuid.NewString() }

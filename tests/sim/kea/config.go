package kea

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// config is a configuration of the DHCPv4 server.
type config struct {
	// fields has everything except the subnets.
	fields object
	direct []*subnet
	shared []*sharedNetwork
}

type sharedNetwork struct {
	fields  object
	subnets []*subnet
}

// subnet is a subnet with its reserved hosts.
type subnet struct {
	id     int64
	prefix netip.Prefix
	// shared is the name of the subnet's shared network, or nil.
	shared any
	fields object
	hosts  []object
}

func (n *subnet) contains(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && n.prefix.Contains(a)
}

// subnets returns all subnets, ordered by ID.
func (c *config) subnets() []*subnet {
	all := slices.Clone(c.direct)
	for _, network := range c.shared {
		all = append(all, network.subnets...)
	}
	slices.SortFunc(all, func(a, b *subnet) int { return int(a.id - b.id) })
	return all
}

func (c *config) find(id int64) *subnet {
	for _, n := range c.subnets() {
		if n.id == id {
			return n
		}
	}
	return nil
}

// parseConfig parses a configuration as strictly as Kea does.
func parseConfig(raw object, g Generation) (*config, error) {
	for key := range raw {
		if !slices.Contains(globalKeys, key) {
			return nil, fmt.Errorf("unsupported global configuration parameter: %s", key)
		}
	}
	c := &config{fields: maps.Clone(raw)}
	delete(c.fields, "subnet4")
	delete(c.fields, "shared-networks")
	networks, err := objects(raw, "shared-networks")
	if err != nil {
		return nil, err
	}
	for _, network := range networks {
		n := &sharedNetwork{fields: maps.Clone(network)}
		delete(n.fields, "subnet4")
		if n.subnets, err = c.parseSubnets(network, g, network["name"]); err != nil {
			return nil, err
		}
		c.shared = append(c.shared, n)
	}
	c.direct, err = c.parseSubnets(raw, g, nil)
	return c, err
}

func (c *config) parseSubnets(owner object, g Generation, shared any) ([]*subnet, error) {
	list, err := objects(owner, "subnet4")
	if err != nil {
		return nil, err
	}
	var all []*subnet
	for _, raw := range list {
		n, err := parseSubnet(raw, g, len(c.subnets())+len(all)+1)
		if err != nil {
			return nil, err
		}
		n.shared = shared
		if err := n.differs(append(c.subnets(), all...)); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// differs reports whether a subnet conflicts with no other.
func (n *subnet) differs(others []*subnet) error {
	for _, other := range others {
		if other.id == n.id {
			return fmt.Errorf("ID of the new IPv4 subnet '%d' is already in use", n.id)
		}
		if other.prefix == n.prefix {
			return fmt.Errorf("subnet with the prefix of '%s' already exists", n.prefix)
		}
	}
	return nil
}

// maxSubnetID is the limit of Kea.
const maxSubnetID = 4294967294

func parseSubnet(raw object, g Generation, next int) (*subnet, error) {
	for key := range raw {
		if !slices.Contains(subnetKeys, key) || (g == Kea2 && key == "evaluate-additional-classes") {
			return nil, fmt.Errorf("spurious '%s' parameter", key)
		}
	}
	if err := checkContext(raw); err != nil {
		return nil, err
	}
	id, err := identity(raw, g, next)
	if err != nil {
		return nil, err
	}
	text, _ := raw["subnet"].(string)
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !prefix.Addr().Is4() {
		return nil, fmt.Errorf("subnet configuration failed: Invalid subnet syntax (prefix/len expected):%s", text)
	}
	n := &subnet{id: int64(id), prefix: prefix, fields: maps.Clone(raw)}
	delete(n.fields, "reservations")
	n.fields["id"], n.fields["subnet"] = id, prefix.String()
	if n.fields["option-data"], err = parseOptions(raw); err != nil {
		return nil, err
	}
	return n, n.reserve(raw)
}

// identity returns the ID of a subnet. Kea 2 assigns one to a subnet without ID.
func identity(raw object, g Generation, next int) (float64, error) {
	id, given := raw["id"].(float64)
	switch {
	case g == Kea2 && id == 0:
		return float64(next), nil
	case !given:
		return 0, fmt.Errorf("subnet configuration failed: missing parameter 'id'")
	case id < 1 || id > maxSubnetID:
		return 0, fmt.Errorf("subnet configuration failed: The 'id' value (%.0f) is not within expected range: (1 - %d)", id, int64(maxSubnetID))
	default:
		return id, nil
	}
}

// reserve adds the reservations in a subnet's configuration.
func (n *subnet) reserve(raw object) error {
	hosts, err := objects(raw, "reservations")
	if err != nil {
		return err
	}
	for _, h := range hosts {
		host, err := parseHost(h)
		if err != nil {
			return err
		}
		if address, ok := host["ip-address"].(string); ok && !n.contains(address) {
			return fmt.Errorf("specified reservation '%s' is not within the IPv4 subnet '%s'", address, n.prefix)
		}
		if err := n.add(host); err != nil {
			return err
		}
	}
	return nil
}

func checkContext(raw object) error {
	if _, ok := raw["user-context"].(object); raw["user-context"] != nil && !ok {
		return fmt.Errorf("'user-context' parameter is not a map")
	}
	return nil
}

// identifierKeys are the identifiers of a client, in the order of Kea.
var identifierKeys = []string{"circuit-id", "client-id", "duid", "flex-id", "hw-address"}

var hexDigits = regexp.MustCompile(`^([0-9A-Fa-f]{2}[:]?)+$`)

// parseHost parses a reservation, and completes it as Kea shows it.
func parseHost(raw object) (object, error) {
	for key := range raw {
		if !slices.Contains(hostKeys, key) && !slices.Contains(identifierKeys, key) {
			return nil, fmt.Errorf("unsupported configuration parameter '%s'", key)
		}
	}
	if err := checkContext(raw); err != nil {
		return nil, err
	}
	kind, value := identifierOf(raw)
	if kind == "" {
		return nil, fmt.Errorf("one of the supported identifiers must be specified for host reservation: %s", strings.Join(identifierKeys, ", "))
	}
	if !hexDigits.MatchString(value) {
		return nil, fmt.Errorf("invalid host identifier value '%s'", value)
	}
	host := object{
		"boot-file-name": "", "client-classes": []any{}, "hostname": "", "next-server": "0.0.0.0", "server-hostname": "",
	}
	maps.Copy(host, raw)
	host[kind] = strings.ToLower(value)
	if text, given := raw["ip-address"].(string); given {
		if a, err := netip.ParseAddr(text); err != nil || !a.Is4() {
			return nil, fmt.Errorf("invalid address '%s'", text)
		}
	}
	var err error
	host["option-data"], err = parseOptions(raw)
	return host, err
}

func identifierOf(host object) (kind, value string) {
	for _, key := range identifierKeys {
		if value, ok := host[key].(string); ok {
			return key, value
		}
	}
	return "", ""
}

// add adds a host, unless its client or its address has a reservation.
func (n *subnet) add(host object) error {
	kind, value := identifierOf(host)
	for _, other := range n.hosts {
		if other[kind] == value {
			return fmt.Errorf("failed to add new host using the HW address '%s' to the IPv4 subnet id '%d' as this host has already been added", value, n.id)
		}
		if host["ip-address"] != nil && other["ip-address"] == host["ip-address"] {
			return fmt.Errorf("failed to add new host using the HW address '%s and DUID '(null)' to the IPv4 subnet id '%d' for the address %s: There's already a reservation for this address",
				value, n.id, host["ip-address"])
		}
	}
	n.hosts = append(n.hosts, host)
	return nil
}

// optionCodes are the supported options of Kea.
var optionCodes = map[string]float64{
	"subnet-mask": 1, "routers": 3, "domain-name-servers": 6, "host-name": 12, "domain-name": 15, "ntp-servers": 42,
	"tftp-server-name": 66, "boot-file-name": 67, "domain-search": 119,
}

// parseOptions parses the options of a scope, and completes them as Kea shows them.
func parseOptions(scope object) ([]any, error) {
	list, err := objects(scope, "option-data")
	if err != nil {
		return nil, err
	}
	options := []any{}
	for _, raw := range list {
		o := object{"always-send": false, "csv-format": true, "space": "dhcp4"}
		maps.Copy(o, raw)
		name, _ := o["name"].(string)
		code, known := optionCodes[name]
		if !known {
			return nil, fmt.Errorf("definition for the option 'dhcp4.%s' does not exist", name)
		}
		if given, ok := o["code"].(float64); ok && given != code {
			return nil, fmt.Errorf("option name '%s' and code '%.0f' do not match", name, given)
		}
		o["code"] = code
		data, _ := o["data"].(string)
		if name == "routers" || name == "domain-name-servers" {
			for part := range strings.SplitSeq(data, ",") {
				if a, err := netip.ParseAddr(strings.TrimSpace(part)); err != nil || !a.Is4() {
					return nil, fmt.Errorf("option data does not match option definition (space: dhcp4, code: %.0f)", code)
				}
			}
		}
		options = append(options, o)
	}
	return options, nil
}

// objects returns the list of objects in an optional field.
func objects(owner object, key string) ([]object, error) {
	raw, given := owner[key]
	if !given {
		return nil, nil
	}
	list, ok := raw.([]any)
	if !ok {
		return nil, fmt.Errorf("'%s' parameter is not a list", key)
	}
	var all []object
	for _, item := range list {
		o, ok := item.(object)
		if !ok {
			return nil, fmt.Errorf("'%s' has an entry that is not a map", key)
		}
		all = append(all, o)
	}
	return all, nil
}

// show returns the configuration as config-get does.
func (c *config) show() object {
	top := maps.Clone(c.fields)
	top["subnet4"] = showSubnets(c.direct)
	networks := []any{}
	for _, network := range c.shared {
		n := maps.Clone(network.fields)
		n["subnet4"] = showSubnets(network.subnets)
		networks = append(networks, n)
	}
	top["shared-networks"] = networks
	return top
}

func showSubnets(subnets []*subnet) []any {
	all := []any{}
	for _, n := range subnets {
		shown := n.show()
		hosts := []any{}
		for _, h := range n.hosts {
			hosts = append(hosts, h)
		}
		shown["reservations"] = hosts
		all = append(all, shown)
	}
	return all
}

// show returns the subnet without its reservations.
func (n *subnet) show() object {
	shown := object{"pools": []any{}, "relay": object{"ip-addresses": []any{}}}
	maps.Copy(shown, n.fields)
	return shown
}

// encode returns the configuration as it is written to disk.
func (c *config) encode() json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(c.show()); err != nil {
		panic(fmt.Sprintf("encode a configuration that was decoded from JSON: %v", err))
	}
	return b.Bytes()
}

func (c *config) hash() string {
	sum := sha256.Sum256(c.encode())
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

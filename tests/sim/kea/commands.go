package kea

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// The commands by their origin: the server itself with lease_cmds, the server since it has hashes, and
// the hooks host_cmds and subnet_cmds.
var (
	basic = map[string]command{
		"list-commands": listCommands, "version-get": versionGet, "status-get": statusGet,
		"config-get": configGet, "config-test": configTest, "config-set": configSet, "config-write": configWrite,
		"lease4-add": leaseAdd, "lease4-get": leaseGet, "lease4-get-all": leaseGetAll, "lease4-del": leaseDel,
	}
	hashed = map[string]command{"config-hash-get": configHashGet}
	hooked = map[string]command{
		"reservation-add": reservationAdd, "reservation-update": reservationUpdate, "reservation-del": reservationDel,
		"reservation-get": reservationGet, "reservation-get-all": reservationGetAll, "reservation-get-by-id": reservationGetByID,
		"subnet4-list": subnetList, "subnet4-get": subnetGet, "subnet4-add": subnetAdd, "subnet4-del": subnetDel,
	}
)

func versionGet(s *Server, _ object) reply {
	version := map[Generation]string{Kea2: "2.2.0"}[s.options.Generation]
	if version == "" {
		version = "3.0.0"
	}
	return reply{Text: version, Arguments: object{"extended": version + " (simulated)"}}
}

func statusGet(*Server, object) reply {
	return reply{Arguments: object{"multi-threading-enabled": false}}
}

func configGet(s *Server, _ object) reply {
	arguments := object{"Dhcp4": s.running.show()}
	if s.options.Generation != Kea2 {
		arguments["hash"] = s.running.hash()
	}
	return reply{Arguments: arguments}
}

func configHashGet(s *Server, _ object) reply {
	return reply{Arguments: object{"hash": s.running.hash()}}
}

func configTest(s *Server, arguments object) reply {
	if _, err := s.offered(arguments); err != nil {
		return failed("%v", err)
	}
	return reply{Text: "Configuration seems sane. Control-socket, hook-libraries, and D2 configuration were sanity checked, but not applied."}
}

func configSet(s *Server, arguments object) reply {
	next, err := s.offered(arguments)
	if err != nil {
		return failed("%v", err)
	}
	s.running = next
	r := reply{Text: "Configuration successful."}
	if s.options.Generation != Kea2 {
		r.Arguments = object{"hash": next.hash()}
	}
	return r
}

// words returns an error with a text of Kea.
type words string

func (w words) Error() string { return string(w) }

// offered parses the configuration in the arguments of a command.
func (s *Server) offered(arguments object) (*config, error) {
	if arguments == nil {
		return nil, words("Missing mandatory 'arguments' parameter.")
	}
	raw, ok := arguments["Dhcp4"].(object)
	if !ok {
		return nil, words("Missing mandatory 'Dhcp4' parameter.")
	}
	for key := range arguments {
		if key != "Dhcp4" {
			return nil, words("Unsupported '" + key + "' parameter.")
		}
	}
	return parseConfig(raw, s.options.Generation)
}

func configWrite(s *Server, _ object) reply {
	s.disk = s.running.encode()
	if s.options.File != "" {
		if err := os.WriteFile(s.options.File, s.disk, 0o600); err != nil {
			return failed("Error during write-config: %s", err)
		}
	}
	return reply{Text: "Configuration written to /etc/kea/kea-dhcp4.conf successful",
		Arguments: object{"filename": "/etc/kea/kea-dhcp4.conf", "size": len(s.disk)}}
}

// lease is an address that a client has.
type lease struct {
	Transaction int64  `json:"cltt"`
	HWAddress   string `json:"hw-address"`
	IPAddress   string `json:"ip-address"`
	State       int    `json:"state"`
	SubnetID    int64  `json:"subnet-id"`
	Lifetime    int64  `json:"valid-lft"`
}

func leaseAdd(s *Server, arguments object) reply {
	l := &lease{Transaction: time.Now().Unix(), Lifetime: 7200}
	raw, err := json.Marshal(arguments)
	if err != nil || json.Unmarshal(raw, l) != nil || l.IPAddress == "" || l.HWAddress == "" {
		return failed("missing parameter 'ip-address' or 'hw-address'")
	}
	n := s.running.find(l.SubnetID)
	switch {
	case n == nil:
		return failed("Invalid subnet-id: No IPv4 subnet with subnet-id=%d currently configured.", l.SubnetID)
	case !n.contains(l.IPAddress):
		return s.conflict("The address %s does not belong to subnet %s, subnet-id=%d", l.IPAddress, n.prefix, n.id)
	case s.leases[l.IPAddress] != nil:
		return s.conflict("IPv4 lease already exists.")
	}
	s.leases[l.IPAddress] = l
	return reply{Text: fmt.Sprintf("Lease for address %s, subnet-id %d added.", l.IPAddress, n.id)}
}

// conflict has a result of its own in the versions that distinguish it from other failures.
func (s *Server) conflict(format string, args ...any) reply {
	r := failed(format, args...)
	if s.options.Generation != Kea2 {
		r.Result = conflict
	}
	return r
}

func leaseGet(s *Server, arguments object) reply {
	address, _ := arguments["ip-address"].(string)
	if l := s.leases[address]; l != nil {
		return reply{Text: "IPv4 lease found.", Arguments: l}
	}
	return reply{Result: empty, Text: "Lease not found."}
}

func leaseGetAll(s *Server, arguments object) reply {
	wanted, some := arguments["subnets"].([]any)
	found := []*lease{}
	for _, address := range slices.Sorted(maps.Keys(s.leases)) {
		l := s.leases[address]
		if !some || slices.Contains(wanted, any(float64(l.SubnetID))) {
			found = append(found, l)
		}
	}
	return listed("leases", found, "%d IPv4 lease(s) found.")
}

func leaseDel(s *Server, arguments object) reply {
	address, _ := arguments["ip-address"].(string)
	if s.leases[address] == nil {
		return reply{Result: empty, Text: "IPv4 lease not found."}
	}
	delete(s.leases, address)
	return reply{Text: "IPv4 lease deleted."}
}

// listed returns a list, or result 3 if it is empty.
func listed[T any](key string, found []T, format string) reply {
	r := reply{Text: fmt.Sprintf(format, len(found)), Arguments: object{key: found}}
	if len(found) == 0 {
		r.Result = empty
	}
	return r
}

func subnetList(s *Server, _ object) reply {
	found := []object{}
	for _, n := range s.running.subnets() {
		found = append(found, object{"id": n.id, "subnet": n.prefix.String(), "shared-network-name": n.shared})
	}
	return listed("subnets", found, "%d IPv4 subnets found")
}

func subnetGet(s *Server, arguments object) reply {
	if len(arguments) != 1 {
		return failed("invalid number of arguments %d for the 'subnet4-get' command. Expecting 'id' or 'subnet'", len(arguments))
	}
	id, byID := arguments["id"].(float64)
	text, byPrefix := arguments["subnet"].(string)
	if !byID && !byPrefix {
		return failed("unexpected argument for the 'subnet4-get' command")
	}
	for _, n := range s.running.subnets() {
		if (byID && n.id == int64(id)) || (byPrefix && n.prefix.String() == text) {
			return reply{Text: fmt.Sprintf("Info about IPv4 subnet %s (id %d) returned", n.prefix, n.id), Arguments: object{"subnet4": []any{n.show()}}}
		}
	}
	return reply{Result: empty, Text: "No subnet found"}
}

func subnetAdd(s *Server, arguments object) reply {
	if len(arguments) != 1 {
		return failed("invalid number of arguments %d for the 'subnet4-add' command. Expecting 'subnet4' list", len(arguments))
	}
	list, err := objects(arguments, "subnet4")
	if err != nil || len(list) != 1 {
		return failed("invalid number of subnets specified for the 'subnet4-add' command. Expected one subnet")
	}
	if _, given := list[0]["reservations"]; given {
		return failed("must not specify host reservations with 'subnet4-add'. Use 'reservation-add' to add a reservation to a subnet")
	}
	n, err := parseSubnet(list[0], s.options.Generation, 0)
	if err == nil {
		err = n.differs(s.running.subnets())
	}
	if err != nil {
		return failed("%v", err)
	}
	s.running.direct = append(s.running.direct, n)
	return reply{Text: "IPv4 subnet added", Arguments: object{"subnets": []any{object{"id": n.id, "subnet": n.prefix.String()}}}}
}

func subnetDel(s *Server, arguments object) reply {
	id, ok := arguments["id"].(float64)
	if !ok || len(arguments) != 1 {
		return failed("invalid number of arguments specified for the 'subnet4-del command. Expected subnet identifier")
	}
	n := s.running.find(int64(id))
	if n == nil {
		return reply{Result: empty, Text: fmt.Sprintf("no subnet with id %.0f found", id)}
	}
	is := func(other *subnet) bool { return other == n }
	s.running.direct = slices.DeleteFunc(s.running.direct, is)
	for _, network := range s.running.shared {
		network.subnets = slices.DeleteFunc(network.subnets, is)
	}
	return reply{Text: fmt.Sprintf("IPv4 subnet %s (id %d) deleted", n.prefix, n.id),
		Arguments: object{"subnets": []any{object{"id": n.id, "subnet": n.prefix.String()}}}}
}

// subnetOf returns the subnet that a command names.
func (s *Server) subnetOf(arguments object) (*subnet, *reply) {
	id, ok := arguments["subnet-id"].(float64)
	if !ok {
		r := failed("missing parameter 'subnet-id'")
		return nil, &r
	}
	n := s.running.find(int64(id))
	if n == nil {
		r := failed("IPv4 subnet with ID of '%.0f' is not configured", id)
		return nil, &r
	}
	return n, nil
}

// memory reports whether a command applies to the reservations in memory, according to its
// operation-target. There is no host database.
func memory(arguments object, standard bool) (bool, *reply) {
	switch target, given := arguments["operation-target"]; {
	case !given, target == "default":
		return standard, nil
	case target == "memory", target == "all":
		return true, nil
	case target == "database":
		return false, nil
	default:
		r := failed("The 'operation-target' value (%v) is not within expected set: (memory, database, all, default)", target)
		return false, &r
	}
}

// isClient reports whether a host belongs to the client that a command names.
func isClient(arguments object) (func(object) bool, *reply) {
	if address, ok := arguments["ip-address"].(string); ok {
		return func(h object) bool { return h["ip-address"] == address }, nil
	}
	kind, ok := arguments["identifier-type"].(string)
	value, named := arguments["identifier"].(string)
	switch {
	case !ok:
		r := failed("No 'ip-address' provided and 'identifier-type' is either missing or not a string.")
		return nil, &r
	case !slices.Contains(identifierKeys, kind):
		r := failed("Value of 'identifier-type' was not recognized.")
		return nil, &r
	case !named:
		r := failed("No 'ip-address' provided and 'identifier' is either missing or not a string.")
		return nil, &r
	}
	value = strings.ToLower(value)
	return func(h object) bool { return h[kind] == value }, nil
}

// shown returns a host as a command's answer shows it.
func shown(n *subnet, host object) object {
	h := maps.Clone(host)
	h["subnet-id"] = n.id
	return h
}

// valid reports whether an address is an IPv4 address.
func valid(text any) bool {
	s, _ := text.(string)
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is4()
}

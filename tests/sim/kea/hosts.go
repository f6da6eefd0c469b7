package kea

import (
	"maps"
	"slices"
)

func reservationAdd(s *Server, arguments object) reply {
	n, host, problem := s.reservation(arguments, "no parameters specified for the command")
	if problem != nil {
		return *problem
	}
	inMemory, problem := memory(arguments, false)
	switch {
	case problem != nil:
		return *problem
	case !inMemory:
		return failed("Host database not available, cannot add host.")
	}
	if err := n.add(host); err != nil {
		return failed("%v", err)
	}
	return reply{Text: "Host added."}
}

// reservationUpdate deletes a host and adds it again. If the addition fails the host is lost, as with
// Kea.
func reservationUpdate(s *Server, arguments object) reply {
	n, host, problem := s.reservation(arguments, "invalid command: does not contain mandatory 'arguments'")
	if problem != nil {
		return *problem
	}
	inMemory, problem := memory(arguments, false)
	switch {
	case problem != nil:
		return *problem
	case !inMemory:
		return failed("host database not available, cannot update host")
	}
	kind, value := identifierOf(host)
	if !n.remove(func(h object) bool { return h[kind] == value }) {
		return failed("Host not updated (not found).")
	}
	if err := n.add(host); err != nil {
		return failed("%v", err)
	}
	return reply{Text: "Host updated."}
}

// reservation returns the host in a command's arguments, and its subnet.
func (s *Server) reservation(arguments object, missing string) (*subnet, object, *reply) {
	problem := func(r reply) (*subnet, object, *reply) { return nil, nil, &r }
	if arguments == nil {
		return problem(failed("%s", missing))
	}
	raw, ok := arguments["reservation"].(object)
	if !ok {
		return problem(failed("reservation must be specified"))
	}
	given := maps.Clone(raw)
	delete(given, "subnet-id")
	host, err := parseHost(given)
	if err != nil {
		return problem(failed("%v", err))
	}
	if raw["subnet-id"] == nil {
		return problem(failed("Mandatory 'subnet-id' parameter missing."))
	}
	n, no := s.subnetOf(raw)
	if no != nil {
		return nil, nil, no
	}
	if address, ok := host["ip-address"].(string); ok && !n.contains(address) {
		return problem(failed("specified reservation '%s' is not matching the IPv4 subnet prefix '%s'", address, n.prefix))
	}
	return n, host, nil
}

func (n *subnet) remove(is func(object) bool) bool {
	before := len(n.hosts)
	n.hosts = slices.DeleteFunc(n.hosts, is)
	return len(n.hosts) < before
}

func reservationDel(s *Server, arguments object) reply {
	n, problem := s.subnetOf(arguments)
	if problem != nil {
		return *problem
	}
	is, problem := isClient(arguments)
	if problem != nil {
		return *problem
	}
	inMemory, problem := memory(arguments, false)
	switch {
	case problem != nil:
		return *problem
	case !inMemory:
		return failed("Unable to delete a host because there is no hosts-database configured.")
	case !n.remove(is):
		return reply{Result: empty, Text: "Host not deleted (not found)."}
	}
	return reply{Text: "Host deleted."}
}

func reservationGet(s *Server, arguments object) reply {
	n, problem := s.subnetOf(arguments)
	if problem != nil {
		return *problem
	}
	is, problem := isClient(arguments)
	if problem != nil {
		return *problem
	}
	inMemory, problem := memory(arguments, true)
	if problem != nil {
		return *problem
	}
	for _, h := range n.hosts {
		if inMemory && is(h) {
			return reply{Text: "Host found.", Arguments: shown(n, h)}
		}
	}
	return reply{Result: empty, Text: "Host not found."}
}

func reservationGetAll(s *Server, arguments object) reply {
	n, problem := s.subnetOf(arguments)
	if problem != nil {
		return *problem
	}
	inMemory, problem := memory(arguments, true)
	if problem != nil {
		return *problem
	}
	found := []object{}
	for _, h := range n.hosts {
		if inMemory {
			found = append(found, shown(n, h))
		}
	}
	return listed("hosts", found, "%d IPv4 host(s) found.")
}

func reservationGetByID(s *Server, arguments object) reply {
	if arguments["subnet-id"] != nil {
		return failed("'subnet-id' is forbidden in reservation-get-by-id")
	}
	if valid(arguments["ip-address"]) {
		return failed("'ip-address' is forbidden in reservation-get-by-id")
	}
	is, problem := isClient(arguments)
	if problem != nil {
		return *problem
	}
	found := []object{}
	for _, n := range s.running.subnets() {
		for _, h := range n.hosts {
			if is(h) {
				found = append(found, shown(n, h))
			}
		}
	}
	return listed("hosts", found, "%d IPv4 host(s) found.")
}

package kea

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Subnet is a subnet in a server's initial configuration.
type Subnet struct {
	ID     int    `json:"id"`
	Subnet string `json:"subnet"`
	// Pools are ranges in the form first-last for clients without a reservation.
	Pools        []Pool         `json:"pools,omitempty"`
	Reservations []Reservation  `json:"reservations,omitempty"`
	UserContext  map[string]any `json:"user-context,omitempty"`
}

// Pool is a range of addresses.
type Pool struct {
	Pool string `json:"pool"`
}

// Reservation is a reservation in a server's initial configuration.
type Reservation struct {
	HWAddress   string         `json:"hw-address,omitempty"`
	ClientID    string         `json:"client-id,omitempty"`
	IPAddress   string         `json:"ip-address,omitempty"`
	UserContext map[string]any `json:"user-context,omitempty"`
}

// Options are the options of a server. The zero Options are a server without subnets and without
// authentication.
type Options struct {
	// Plain omits the hooks host_cmds and subnet_cmds of Kea 3, so that it has the commands of Kea 2.
	Plain   bool
	Subnets []Subnet
	// SharedNetworks has subnets by the name of their shared network.
	SharedNetworks map[string][]Subnet
	// Interface is the interface of a LAN on which the server serves clients directly. Without one, it serves the relay of
	// Lease on the loopback interface.
	Interface string
	// Username and Password are required credentials, unless Username is empty.
	Username, Password string
	// TLS makes the server use HTTPS and require a client certificate of the same authority.
	TLS *TLS
}

// TLS has the server's certificate, key and authority, in PEM.
type TLS struct{ CA, Cert, Key []byte }

type object = map[string]any

// write writes the configurations of a server, with the networks and reservations of an earlier one.
func (s *Server) write(o Options, earlier object) error {
	hooks := []string{"lease_cmds"}
	if s.software.generation == Kea3 && !o.Plain {
		hooks = append(hooks, "host_cmds", "subnet_cmds")
	}
	var libraries []object
	for _, hook := range hooks {
		libraries = append(libraries, object{"library": filepath.Join(s.software.hooks, "libdhcp_"+hook+".so")})
	}
	interfaces := object{"interfaces": []string{"lo"}, "dhcp-socket-type": "udp"}
	if o.Interface != "" {
		interfaces = object{"interfaces": []string{o.Interface}, "dhcp-socket-type": "raw"}
	}
	dhcp4 := object{
		"interfaces-config": interfaces,
		// Without an interval Kea does not need kea-lfc, which it expects at its installed path.
		"lease-database":  object{"type": "memfile", "persist": true, "name": s.path("leases.csv"), "lfc-interval": 0},
		"hooks-libraries": libraries,
		"valid-lifetime":  600,
		"subnet4":         append([]Subnet{}, o.Subnets...),
		"loggers":         logger("kea-dhcp4"),
	}
	var shared []object
	for name, subnets := range o.SharedNetworks {
		shared = append(shared, object{"name": name, "subnet4": subnets})
	}
	if shared != nil {
		dhcp4["shared-networks"] = shared
	}
	for _, key := range []string{"subnet4", "shared-networks", "reservations"} {
		if v, ok := earlier[key]; ok {
			dhcp4[key] = v
		}
	}
	if o.TLS != nil {
		for name, content := range map[string][]byte{"ca.pem": o.TLS.CA, "cert.pem": o.TLS.Cert, "key.pem": o.TLS.Key} {
			if err := os.WriteFile(s.path(name), content, 0o600); err != nil {
				return err
			}
		}
	}
	if s.software.generation == Kea3 {
		dhcp4["control-sockets"] = []object{s.socket(o)}
		return s.save(dhcpFile, object{"Dhcp4": dhcp4})
	}
	unix := object{"socket-type": "unix", "socket-name": s.path("socket")}
	dhcp4["control-socket"] = unix
	agent := s.agent(o)
	agent["control-sockets"] = object{"dhcp4": unix}
	agent["loggers"] = logger("kea-ctrl-agent")
	if err := s.save(agentFile, object{"Control-agent": agent}); err != nil {
		return err
	}
	return s.save(dhcpFile, object{"Dhcp4": dhcp4})
}

// socket returns the configuration of the DHCP server's HTTP socket.
func (s *Server) socket(o Options) object {
	socket := object{"socket-type": "http", "socket-address": "127.0.0.1", "socket-port": s.port.Number}
	if o.TLS != nil {
		socket["socket-type"] = "https"
	}
	return s.secure(socket, o)
}

// agent returns the configuration of the control agent in front of the DHCP server.
func (s *Server) agent(o Options) object {
	return s.secure(object{"http-host": "127.0.0.1", "http-port": s.port.Number}, o)
}

func (s *Server) secure(socket object, o Options) object {
	if o.TLS != nil {
		socket["trust-anchor"], socket["cert-file"], socket["key-file"] = s.path("ca.pem"), s.path("cert.pem"), s.path("key.pem")
		socket["cert-required"] = true
	}
	if o.Username != "" {
		socket["authentication"] = object{
			"type": "basic", "realm": "kea",
			"clients": []object{{"user": o.Username, "password": o.Password}},
		}
	}
	return socket
}

func logger(name string) []object {
	return []object{{"name": name, "severity": "INFO", "output_options": []object{{"output": "stdout"}}}}
}

// save replaces a file atomically.
func (s *Server) save(name string, content object) error {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path(name)+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path(name)+".new", s.path(name))
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

package kea

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Offer is what a client gets by DHCP.
type Offer struct {
	Address string
	// Mask is the length of the subnet's prefix, which Kea sends whatever the options say (getNetmaskOption of dhcp4_srv.cc).
	Mask         int
	Routers, DNS string
}

// ErrNoOffer means that the server would not answer a client.
var ErrNoOffer = errors.New("the server offers nothing")

// Serve gives a client with a MAC address a lease in the subnet that Kea selects for link. Only a client with
// a reservation gets one, and only if no other client has a lease of its address.
func (s *Server) Serve(mac, link string) (Offer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLeases()
	mac = strings.ToLower(mac)
	for _, n := range s.running.selectSubnets(link) {
		for _, h := range n.hosts {
			address, _ := h["ip-address"].(string)
			if h["hw-address"] != mac || address == "" {
				continue
			}
			if l := s.leases[address]; l != nil && l.HWAddress != mac {
				return Offer{}, ErrNoOffer
			}
			s.leases[address] = &lease{
				Transaction: time.Now().Unix(), HWAddress: mac, IPAddress: address, SubnetID: n.id, Lifetime: s.running.lifetime(),
			}
			return Offer{
				Address: address, Mask: n.prefix.Bits(),
				Routers: option("routers", h, n.fields), DNS: option("domain-name-servers", h, n.fields),
			}, nil
		}
	}
	return Offer{}, ErrNoOffer
}

// selectSubnets returns the subnets from which Kea serves a client on the link with an address. Kea selects the subnet
// with the lowest ID that contains the address, whatever its size (CfgSubnets4::selectSubnet), and with it the others of its
// shared network.
func (c *config) selectSubnets(link string) []*subnet {
	all := c.subnets()
	i := slices.IndexFunc(all, func(n *subnet) bool { return n.contains(link) })
	if i < 0 {
		return nil
	}
	selected := all[i]
	return slices.DeleteFunc(all, func(n *subnet) bool { return n != selected && (selected.shared == nil || n.shared != selected.shared) })
}

// lifetime returns for how many seconds a lease is valid.
func (c *config) lifetime() int64 {
	const standard = 7200
	if seconds, ok := c.fields["valid-lifetime"].(float64); ok {
		return int64(seconds)
	}
	return standard
}

// expireLeases deletes the leases that are no longer valid.
func (s *Server) expireLeases() {
	now := time.Now().Unix()
	for address, l := range s.leases {
		if l.Transaction+l.Lifetime < now {
			delete(s.leases, address)
		}
	}
}

// option returns the value of an option in the first scope that has it.
func option(name string, scopes ...object) string {
	for _, scope := range scopes {
		options, _ := scope["option-data"].([]any)
		for _, o := range options {
			if o, _ := o.(object); o["name"] == name {
				data, _ := o["data"].(string)
				return data
			}
		}
	}
	return ""
}

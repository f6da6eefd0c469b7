package inventory

import (
	"strconv"
	"time"

	"github.com/vitistack/stack/apis/v1alpha2"
)

type addressCount struct {
	Total     int64 `json:"total"`
	Allocated int64 `json:"allocated"`
	Free      int64 `json:"free"`
}

type networkJSON struct {
	head
	Provider    string        `json:"provider"`
	Allocation  string        `json:"allocation"`
	IPv4Prefix  string        `json:"ipv4Prefix,omitempty"`
	IPv4Gateway string        `json:"ipv4Gateway,omitempty"`
	IPv6Prefix  string        `json:"ipv6Prefix,omitempty"`
	IPv6Gateway string        `json:"ipv6Gateway,omitempty"`
	VLAN        int32         `json:"vlanId"`
	Datacenter  string        `json:"datacenter,omitempty"`
	Addresses   *addressCount `json:"addresses,omitempty"`
	tail
}

func networkItem(o *Object) *Item {
	f := o.Facts.(*Network)
	i := itemOf(TopicNetworks, o, phaseStatus(TopicNetworks, f.Phase), f.Phase, f)
	out := networkJSON{
		head: i.head(), tail: i.tail(), Provider: f.Provider, Allocation: f.Allocation,
		IPv4Prefix: f.IPv4Prefix, IPv4Gateway: f.IPv4Gateway, IPv6Prefix: f.IPv6Prefix, IPv6Gateway: f.IPv6Gateway,
		VLAN: f.VLAN, Datacenter: f.Datacenter,
	}
	if f.Counted {
		out.Addresses = &addressCount{Total: f.Total, Allocated: f.Allocated, Free: f.Free}
	}
	i.JSON = encode(out)
	return i
}

func (f *Network) attribute(name string) string {
	switch name {
	case "provider":
		return f.Provider
	case "allocation":
		return f.Allocation
	case "datacenter":
		return f.Datacenter
	case "vlan":
		return strconv.Itoa(int(f.VLAN))
	case "free":
		return counted(f.Counted, f.Free)
	case "allocated":
		return counted(f.Counted, f.Allocated)
	}
	return ""
}

// counted returns a count, or nothing if the network has not been counted.
func counted(is bool, n int64) string {
	if !is {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

type addressJSON struct {
	head
	Network    string      `json:"network,omitempty"`
	Machine    string      `json:"machine,omitempty"`
	Cluster    string      `json:"cluster,omitempty"`
	Interfaces []Interface `json:"interfaces"`
	tail
}

func addressItem(o *Object) *Item {
	f := o.Facts.(*Address)
	i := itemOf(TopicAddresses, o, phaseStatus(TopicAddresses, f.Phase), f.Phase, f)
	interfaces := f.Interfaces
	if interfaces == nil {
		interfaces = []Interface{}
	}
	i.JSON = encode(addressJSON{
		head: i.head(), tail: i.tail(), Network: f.Network, Machine: f.Machine, Cluster: f.Cluster, Interfaces: interfaces,
	})
	return i
}

func (a *Address) attribute(name string) string {
	switch name {
	case "network":
		return a.Network
	case "machine":
		return a.Machine
	case "cluster":
		return a.Cluster
	}
	return ""
}

type allocationJSON struct {
	head
	Network   string    `json:"network"`
	Address   string    `json:"address,omitempty"`
	Family    string    `json:"family,omitempty"`
	Method    string    `json:"method"`
	Holder    string    `json:"holder,omitempty"`
	Cluster   string    `json:"cluster,omitempty"`
	Interface string    `json:"interface,omitempty"`
	Requested string    `json:"requestedAddress,omitempty"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	tail
}

func allocationItem(o *Object) *Item {
	f := o.Facts.(*Allocation)
	i := itemOf(TopicAllocations, o, phaseStatus(TopicAllocations, f.Phase), f.Phase, f)
	i.JSON = encode(allocationJSON{
		head: i.head(), tail: i.tail(), Network: f.Network, Address: f.Address, Family: f.Family,
		Method: string(v1alpha2.AllocationStatic), Holder: f.Holder, Cluster: f.Cluster, Interface: f.Interface,
		Requested: f.Requested, ExpiresAt: f.Expires,
	})
	return i
}

func (f *Allocation) attribute(name string) string {
	switch name {
	case "network":
		return f.Network
	case "holder":
		return f.Holder
	case "address":
		return f.Address
	case "family":
		return f.Family
	case "method":
		return string(v1alpha2.AllocationStatic)
	}
	return ""
}

// reservation is one address that a DHCP server reserves for an interface. It is listed with the allocations.
type reservation struct {
	network, holder, address, family string
}

func (r *reservation) attribute(name string) string {
	switch name {
	case "network":
		return r.network
	case "holder":
		return r.holder
	case "address":
		return r.address
	case "family":
		return r.family
	case "method":
		return string(v1alpha2.AllocationDHCP)
	}
	return ""
}

// reservationItems returns the items of the reservations of a NetworkConfiguration.
func reservationItems(o *Object) []*Item {
	f := o.Facts.(*Address)
	var items []*Item
	for _, n := range f.Interfaces {
		if n.Method != string(v1alpha2.AllocationDHCP) {
			continue
		}
		for _, address := range n.Addresses {
			items = append(items, reservationItem(o, f, n, address))
		}
	}
	return items
}

func reservationID(o *Object, n Interface, address string) string {
	return o.UID + "." + n.Name + "." + address
}

func reservationItem(o *Object, f *Address, n Interface, address string) *Item {
	phase := string(v1alpha2.IPAllocationPending)
	if n.Reserved {
		phase = string(v1alpha2.IPAllocationAllocated)
	}
	r := &reservation{network: f.Network, holder: o.Name, address: address, family: family(address)}
	i := itemOf(TopicAllocations, o, phaseStatus(TopicAllocations, phase), phase, r)
	i.ID, i.Name = reservationID(o, n, address), o.Name+"-"+n.Name
	i.Readiness.Ready = n.Reserved
	i.JSON = encode(allocationJSON{
		head: i.head(), tail: i.tail(), Network: r.network, Address: address, Family: r.family,
		Method: string(v1alpha2.AllocationDHCP), Holder: o.Name, Interface: n.Name,
	})
	return i
}

func family(address string) string {
	if contains(address, ":") {
		return string(v1alpha2.IPv6)
	}
	return string(v1alpha2.IPv4)
}

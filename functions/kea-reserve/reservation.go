package main

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// mark is what a reservation's user-context says about whom it is for. It tells
// the stack's reservations from others, and each holder's from the next one's.
type mark struct {
	// UID is the one of the NetworkConfiguration.
	UID string `json:"vitistack.io/uid,omitempty"`
	// Name is its namespace and name.
	Name      string `json:"vitistack.io/networkconfiguration,omitempty"`
	Interface string `json:"vitistack.io/interface,omitempty"`
	// Network is the UID of the NetworkNamespace.
	Network string `json:"vitistack.io/networknamespace-uid,omitempty"`
}

// identifier is what Kea knows a client by: a type, such as hw-address, and a
// value.
type identifier struct{ kind, value string }

func (i identifier) String() string { return i.kind + " " + i.value }

const hwAddress = "hw-address"

// reservation is a host reservation in a subnet of Kea. Two are equal if they are
// the same to a client and to the stack.
type reservation struct {
	subnet uint32
	client identifier
	// address is not valid where the reservation has none.
	address netip.Addr
	// routers and dns are the addresses of these options, joined by commas.
	routers, dns string
	mark         mark
}

// canonicalMAC is how Kea writes a MAC address.
func canonicalMAC(mac string) string {
	return strings.ToLower(strings.ReplaceAll(mac, "-", ":"))
}

// host is a reservation in Kea's JSON.
type host struct {
	SubnetID    uint32          `json:"subnet-id,omitempty"`
	HWAddress   string          `json:"hw-address,omitempty"`
	DUID        string          `json:"duid,omitempty"`
	CircuitID   string          `json:"circuit-id,omitempty"`
	ClientID    string          `json:"client-id,omitempty"`
	FlexID      string          `json:"flex-id,omitempty"`
	IPAddress   string          `json:"ip-address,omitempty"`
	OptionData  []option        `json:"option-data,omitempty"`
	UserContext json.RawMessage `json:"user-context,omitempty"`
}

// option is a DHCP option in Kea's JSON.
type option struct {
	Name string `json:"name,omitempty"`
	Code int    `json:"code,omitempty"`
	Data string `json:"data"`
}

// Codes of the DHCP options that a network has, and their names in Kea.
const (
	codeRouters, nameRouters = 3, "routers"
	codeDNS, nameDNS         = 6, "domain-name-servers"
)

func (r reservation) encode() host {
	context, _ := json.Marshal(r.mark)
	return host{
		SubnetID: r.subnet, HWAddress: r.client.value, IPAddress: r.address.String(),
		OptionData: encodeOptions(r.routers, r.dns), UserContext: context,
	}
}

func (h host) decode(subnet uint32) reservation {
	r := reservation{subnet: subnet, client: h.identifier()}
	if address, err := netip.ParseAddr(h.IPAddress); err == nil && !address.IsUnspecified() {
		r.address = address
	}
	r.routers, r.dns = decodeOptions(h.OptionData)
	if json.Unmarshal(h.UserContext, &r.mark) != nil {
		r.mark = mark{}
	}
	return r
}

func (h host) identifier() identifier {
	for _, i := range []identifier{
		{hwAddress, canonicalMAC(h.HWAddress)}, {"duid", h.DUID}, {"circuit-id", h.CircuitID},
		{"client-id", h.ClientID}, {"flex-id", h.FlexID},
	} {
		if i.value != "" {
			return i
		}
	}
	return identifier{"unknown", "identifier"}
}

func encodeOptions(routers, dns string) []option {
	var options []option
	if routers != "" {
		options = append(options, option{Name: nameRouters, Code: codeRouters, Data: routers})
	}
	if dns != "" {
		options = append(options, option{Name: nameDNS, Code: codeDNS, Data: dns})
	}
	return options
}

func decodeOptions(options []option) (routers, dns string) {
	for _, o := range options {
		switch {
		case o.Code == codeRouters || o.Name == nameRouters:
			routers = canonicalList(o.Data)
		case o.Code == codeDNS || o.Name == nameDNS:
			dns = canonicalList(o.Data)
		}
	}
	return routers, dns
}

// canonicalList is how Kea writes a list of addresses in an option.
func canonicalList(data string) string {
	parts := strings.Split(data, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return strings.Join(parts, ", ")
}

// lease is an address that a client has now.
type lease struct {
	mac     string
	address netip.Addr
}

// leaseJSON is a lease in Kea's JSON.
type leaseJSON struct {
	HWAddress string `json:"hw-address"`
	IPAddress string `json:"ip-address"`
	State     int    `json:"state"`
	// LastTransaction is a Unix time.
	LastTransaction int64 `json:"cltt"`
}

// leaseReclaimed is the state of a lease that has ended. Any other state keeps the
// address from others.
const leaseReclaimed = 2

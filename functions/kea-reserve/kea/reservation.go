package kea

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// Owner is what the user-context of a reservation says about whom it is for. Reservations
// without it were not made by the stack.
type Owner struct {
	// UID is that of the NetworkConfiguration.
	UID string `json:"vitistack.io/uid,omitempty"`
	// Name is the namespace and name of the NetworkConfiguration.
	Name      string `json:"vitistack.io/networkconfiguration,omitempty"`
	Interface string `json:"vitistack.io/interface,omitempty"`
	// Network is the UID of the NetworkNamespace.
	Network string `json:"vitistack.io/networknamespace-uid,omitempty"`
}

// Identifier is what Kea knows a client by: a type, such as hw-address, and a value.
type Identifier struct{ Type, Value string }

func (i Identifier) String() string { return i.Type + " " + i.Value }

const hwAddress = "hw-address"

// MACIdentifier identifies a client by its MAC address in the form of CanonicalMAC.
func MACIdentifier(mac string) Identifier { return Identifier{Type: hwAddress, Value: mac} }

// Reservation is a host reservation in a subnet. Equal Reservations are the same to the client
// and to the stack.
type Reservation struct {
	Subnet uint32
	Client Identifier
	// Address is the zero Addr if the reservation has none.
	Address netip.Addr
	// Routers and DNS are the addresses of these options, separated by a comma and a space.
	Routers, DNS string
	Owner        Owner
}

// CanonicalMAC returns a MAC address as Kea writes it: in lower case, with colons.
func CanonicalMAC(mac string) string {
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

func (r Reservation) encode() host {
	context, _ := json.Marshal(r.Owner)
	return host{
		SubnetID: r.Subnet, HWAddress: r.Client.Value, IPAddress: r.Address.String(),
		OptionData: encodeOptions(r.Routers, r.DNS), UserContext: context,
	}
}

func (h host) decode(subnet uint32) Reservation {
	r := Reservation{Subnet: subnet, Client: h.identifier()}
	if address, err := netip.ParseAddr(h.IPAddress); err == nil && !address.IsUnspecified() {
		r.Address = address
	}
	r.Routers, r.DNS = decodeOptions(h.OptionData)
	if json.Unmarshal(h.UserContext, &r.Owner) != nil {
		r.Owner = Owner{}
	}
	return r
}

func (h host) identifier() Identifier {
	for _, i := range []Identifier{
		{hwAddress, CanonicalMAC(h.HWAddress)}, {"duid", h.DUID}, {"circuit-id", h.CircuitID},
		{"client-id", h.ClientID}, {"flex-id", h.FlexID},
	} {
		if i.Value != "" {
			return i
		}
	}
	return Identifier{"unknown", "identifier"}
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

// canonicalList returns a list of addresses as Kea writes it in an option.
func canonicalList(data string) string {
	parts := strings.Split(data, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return strings.Join(parts, ", ")
}

// ID names a reservation on every server.
func (r Reservation) ID() string {
	if !r.Address.IsValid() {
		return fmt.Sprintf("%s in subnet %d", r.Client, r.Subnet)
	}
	return fmt.Sprintf("%s in subnet %d", r.Address, r.Subnet)
}

// RemoveCommand returns the JSON of the command that removes a reservation.
func (r Reservation) RemoveCommand() string {
	text, _ := json.Marshal(command{Command: removeReservation, Service: []string{service}, Arguments: r.removal()})
	return string(text)
}

// removal returns the arguments of reservation-del.
func (r Reservation) removal() any {
	return map[string]any{
		"subnet-id": r.Subnet, "identifier-type": r.Client.Type, "identifier": r.Client.Value, "operation-target": everywhere,
	}
}

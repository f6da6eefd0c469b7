package kea

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Offer is what a client gets by DHCP.
type Offer struct {
	Address netip.Addr
	Mask    int
	Routers []netip.Addr
	DNS     []netip.Addr
}

// ErrNoOffer means that the server did not answer a client.
var ErrNoOffer = errors.New("the server offers nothing")

// openRelay opens the socket of the relay, and chooses the port of the server.
func (s *Server) openRelay() error {
	loopback := net.IPv4(127, 0, 0, 1)
	var err error
	if s.relay, err = net.ListenUDP("udp4", &net.UDPAddr{IP: loopback}); err != nil {
		return fmt.Errorf("open the relay: %w", err)
	}
	// The kernel gives sockets without a port one from 32768 (ip_local_port_range), so that none of them
	// gets the server's port before the server starts, or while it restarts.
	const first, last, tries = 10000, 32767, 100
	for range tries {
		number := first + rand.IntN(last-first+1)
		var socket *net.UDPConn
		if socket, err = net.ListenUDP("udp4", &net.UDPAddr{IP: loopback, Port: number}); err == nil {
			s.serverPort = number
			return socket.Close()
		}
	}
	s.closeRelay()
	return fmt.Errorf("find a free port for DHCP: %w", err)
}

func (s *Server) closeRelay() {
	if s.relay != nil {
		_ = s.relay.Close()
	}
}

// Lease requests an address by DHCP for a client with a MAC address, in the subnet that contains link.
// The client sends through a relay, so that it needs neither rights nor an interface.
func (s *Server) Lease(ctx context.Context, mac string, link netip.Addr) (Offer, error) {
	s.relaying.Lock()
	defer s.relaying.Unlock()
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return Offer{}, err
	}
	discover, err := dhcpv4.NewDiscovery(hw)
	if err != nil {
		return Offer{}, err
	}
	offer, err := s.exchange(ctx, discover, link, dhcpv4.MessageTypeOffer)
	if err != nil {
		return Offer{}, err
	}
	request, err := dhcpv4.NewRequestFromOffer(offer)
	if err != nil {
		return Offer{}, err
	}
	ack, err := s.exchange(ctx, request, link, dhcpv4.MessageTypeAck)
	if err != nil {
		return Offer{}, err
	}
	address, _ := netip.AddrFromSlice(ack.YourIPAddr.To4())
	ones, _ := ack.SubnetMask().Size()
	return Offer{Address: address, Mask: ones, Routers: addresses(ack.Router()), DNS: addresses(ack.DNS())}, nil
}

// exchange relays a message, with retries, until its answer arrives.
func (s *Server) exchange(ctx context.Context, m *dhcpv4.DHCPv4, link netip.Addr, want dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	const tries, patience = 8, 700 * time.Millisecond // a busy machine answers late
	m.GatewayIPAddr, m.HopCount = net.IPv4(127, 0, 0, 1), 1
	m.UpdateOption(dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.LinkSelectionSubOption, link.AsSlice())))
	server := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.serverPort}
	buffer := make([]byte, 4096)
	for range tries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := s.relay.WriteToUDP(m.ToBytes(), server); err != nil {
			return nil, fmt.Errorf("relay a message: %w", err)
		}
		if err := s.relay.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
		for {
			n, _, err := s.relay.ReadFromUDP(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read from the server: %w", err)
			}
			answer, err := dhcpv4.FromBytes(buffer[:n])
			if err != nil || answer.TransactionID != m.TransactionID {
				continue
			}
			if answer.MessageType() == want {
				return answer, nil
			}
			if answer.MessageType() == dhcpv4.MessageTypeNak {
				return nil, ErrNoOffer
			}
		}
	}
	return nil, ErrNoOffer
}

func addresses(ips []net.IP) []netip.Addr {
	var all []netip.Addr
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip.To4()); ok {
			all = append(all, a)
		}
	}
	return all
}

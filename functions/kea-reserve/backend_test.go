package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/vitistack/stack/functions/kea-reserve/kea"
	"github.com/vitistack/stack/tests/sim/faults"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// backend is the Kea server of a single test.
type backend interface {
	URL() string
	Command(ctx context.Context, name string, arguments, into any) (int, error)
	// Restart restarts the server, which loses what it has not persisted.
	Restart(t testing.TB)
	// Lease requests an address by DHCP, or only returns the offer.
	Lease(ctx context.Context, mac string, link netip.Addr) (stand.Offer, error)
}

// backends are the servers on which the function must behave the same: real ones of both generations,
// and their simulators.
var backends = map[string]func(*testing.T, stand.Options) backend{
	"Kea2": func(t *testing.T, o stand.Options) backend { return stand.Start(t, stand.Kea2, o) },
	"Kea3": func(t *testing.T, o stand.Options) backend { return stand.Start(t, stand.Kea3, o) },
	"Kea3Plain": func(t *testing.T, o stand.Options) backend {
		o.Plain = true
		return stand.Start(t, stand.Kea3, o)
	},
	"Sim2": func(t *testing.T, o stand.Options) backend { return simulate(t, sim.Kea2, o) },
	"Sim3": func(t *testing.T, o stand.Options) backend { return simulate(t, sim.Kea3, o) },
}

// onEach runs a test on each backend.
func onEach(t *testing.T, o stand.Options, test func(*testing.T, backend)) {
	t.Helper()
	t.Parallel()
	for name, start := range backends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, o))
		})
	}
}

// simulated is a simulator with an HTTP server.
type simulated struct {
	*sim.Server
	http   *httptest.Server
	faults *faults.Plan
}

func simulate(t *testing.T, g sim.Generation, o stand.Options) *simulated {
	t.Helper()
	config := map[string]any{"subnet4": append([]stand.Subnet{}, o.Subnets...)}
	var shared []any
	for name, subnets := range o.SharedNetworks {
		shared = append(shared, map[string]any{"name": name, "subnet4": subnets})
	}
	if shared != nil {
		config["shared-networks"] = shared
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	// plan is the fault plan of the simulator.
	plan := &faults.Plan{}
	server, err := sim.New(sim.Options{Generation: g, Dhcp4: raw, Username: o.Username, Password: o.Password, Faults: plan})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulated{Server: server, http: httptest.NewServer(server), faults: plan}
	t.Cleanup(s.http.Close)
	return s
}

func (s *simulated) URL() string { return s.http.URL }

func (s *simulated) Restart(t testing.TB) {
	t.Helper()
	if err := s.Server.Restart(); err != nil {
		t.Fatal(err)
	}
}

func (s *simulated) Lease(_ context.Context, mac string, link netip.Addr) (stand.Offer, error) {
	given, err := s.Serve(mac, link.String())
	if err != nil {
		return stand.Offer{}, stand.ErrNoOffer
	}
	offer := stand.Offer{Mask: given.Mask}
	if offer.Address, err = netip.ParseAddr(given.Address); err != nil {
		return stand.Offer{}, err
	}
	offer.Routers, offer.DNS = addresses(given.Routers), addresses(given.DNS)
	return offer, nil
}

func addresses(list string) []netip.Addr {
	var all []netip.Addr
	for part := range strings.SplitSeq(list, ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(part)); err == nil {
			all = append(all, a)
		}
	}
	return all
}

func (s *simulated) Command(ctx context.Context, name string, arguments, into any) (int, error) {
	body, err := json.Marshal(map[string]any{"command": name, "service": []string{"dhcp4"}, "arguments": arguments})
	if arguments == nil {
		body, err = json.Marshal(map[string]any{"command": name, "service": []string{"dhcp4"}})
	}
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	var answers []struct {
		Result    int             `json:"result"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answers); err != nil {
		return 0, err
	}
	if into != nil && len(answers[0].Arguments) > 0 {
		return answers[0].Result, json.Unmarshal(answers[0].Arguments, into)
	}
	return answers[0].Result, nil
}

// hosts returns the addresses of all reservations of a server, by MAC address or other identifier.
func hosts(t *testing.T, b backend) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range reservationsOf(t, b) {
		all[r.Client.Value] = orNone(r.Address)
	}
	return all
}

func reservationsOf(t *testing.T, b backend) []kea.Reservation {
	t.Helper()
	var config struct {
		Dhcp4 json.RawMessage `json:"Dhcp4"`
	}
	if result, err := b.Command(t.Context(), "config-get", nil, &config); err != nil || result != 0 {
		t.Fatalf("config-get: result %d, error %v", result, err)
	}
	d, err := kea.ParseConfiguration(config.Dhcp4)
	if err != nil {
		t.Fatal(err)
	}
	return d.Reservations()
}

// subnetsOf returns the prefixes of a server's subnets, by ID.
func subnetsOf(t *testing.T, b backend) map[uint32]string {
	t.Helper()
	var config struct {
		Dhcp4 json.RawMessage `json:"Dhcp4"`
	}
	if result, err := b.Command(t.Context(), "config-get", nil, &config); err != nil || result != 0 {
		t.Fatalf("config-get: result %d, error %v", result, err)
	}
	d, err := kea.ParseConfiguration(config.Dhcp4)
	if err != nil {
		t.Fatal(err)
	}
	all := map[uint32]string{}
	for _, s := range d.Subnets() {
		all[s.ID] = s.Prefix.String()
	}
	return all
}

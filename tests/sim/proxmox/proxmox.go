package proxmox

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/stack/tests/sim/faults"
)

// Options are the options of the simulated cluster. The zero value is a cluster of three nodes without
// users. See Grants and Tokens.
type Options struct {
	// Plan is the fault plan. The package documentation has the operations. Default: no faults.
	Plan *faults.Plan
	// Log receives internal errors. Default: none.
	Log *slog.Logger
	// Times are the durations of steps.
	Times Times
	// Nodes are the hosts. Default: pve1, pve2 and pve3 with 32 CPUs, 128 GiB and the bridge vmbr0.
	Nodes []Node
	// Storages are the storages. Default: local, local-lvm and the shared storage ceph, which is
	// called fast-ssd.
	Storages []Storage
	// Version is the release of Proxmox VE. Default: Version.
	Version string
	// Pools exist from the beginning.
	Pools []string
	Users []User
	// Tokens are API tokens of Users.
	Tokens []Token
	// Guests starts and stops the guests. Default: guests that do nothing.
	Guests Guests
	// DHCP answers a guest that requests a lease on a bridge and VLAN. It must return soon. Default:
	// no network has a DHCP server.
	DHCP func(mac, bridge string, vlan int) (address netip.Prefix, gateway netip.Addr, ok bool)
	// Firewall is whether the datacenter's firewall is enabled. It is required for the firewall of any
	// machine.
	Firewall bool
	// State is a file that stores everything over restarts. Default: everything is kept in memory.
	State string
}

// Times are the durations of the steps in the life of a machine.
type Times struct {
	// Task is the duration of every task. Copy is the additional duration of a task that copies or
	// downloads a disk.
	Task, Copy time.Duration
	// Boot is the time from the start to the guest's agent and addresses.
	Boot time.Duration
	// Stats is the time until the resources of the cluster list the state and the size of a new machine, and not only its node, its lock and its
	// tags. Proxmox VE collects them every ten seconds.
	Stats time.Duration
	// HA is the time until high availability does what a task has requested. It looks for requests every ten seconds.
	HA time.Duration
	// Unauthorized is the delay of a call without valid credentials. Proxmox VE delays it by three
	// seconds.
	Unauthorized time.Duration
}

// Node is a host.
type Node struct {
	Name string
	CPUs int
	// Memory is in bytes.
	Memory  int64
	Bridges []string
	// Offline nodes are known, but do not answer.
	Offline bool
}

// Storage is a storage for volumes. A shared storage has its capacity once, and any other on each
// node.
type Storage struct {
	Name, Type string
	Content    []string
	Shared     bool
	// Capacity is in bytes.
	Capacity int64
	// Nodes limits it to some nodes. Default: all nodes.
	Nodes []string
}

const gib = int64(1) << 30

func (o Options) withDefaults() Options {
	if o.Plan == nil {
		o.Plan = &faults.Plan{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Guests == nil {
		o.Guests = noGuests{}
	}
	if o.Version == "" {
		o.Version = Version
	}
	if o.Nodes == nil {
		for i := range 3 {
			o.Nodes = append(o.Nodes, Node{Name: fmt.Sprintf("pve%d", i+1), CPUs: 32, Memory: 128 * gib, Bridges: []string{"vmbr0"}})
		}
	}
	if o.Storages == nil {
		o.Storages = []Storage{
			{Name: "local", Type: "dir", Content: []string{"iso", "vztmpl", "import", "snippets", "backup"}, Capacity: 1024 * gib},
			{Name: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}, Capacity: 4096 * gib},
			{Name: "fast-ssd", Type: "rbd", Content: []string{"images", "rootdir"}, Shared: true, Capacity: 8192 * gib},
		}
	}
	return o
}

// Server is a simulated cluster. It is an HTTP handler and safe for concurrent use. Close ends its
// running tasks, as a power cut does.
type Server struct {
	options Options
	routes  []route

	mu       sync.Mutex
	closed   bool
	saving   bool
	machines map[int]*machine
	volumes  map[volumeKey]*volume
	pools    map[string]bool
	tasks    map[string]*task
	// busy has the tasks of each machine that wait for the task with its lock.
	busy    map[int][]*task
	tickets map[string]ticket
	users   map[string]User
	tokens  map[string]Token
	nextPID int
	// authority signs the certificate of the API.
	authority *authority
	timers    map[*time.Timer]bool
	// forgotten are the hosts whose statistics the cluster has forgotten.
	forgotten map[string]bool
}

// New returns a cluster with the content of its state file.
func New(options Options) (*Server, error) {
	s := &Server{
		options: options.withDefaults(), machines: map[int]*machine{}, volumes: map[volumeKey]*volume{}, pools: map[string]bool{},
		tasks: map[string]*task{}, busy: map[int][]*task{}, tickets: map[string]ticket{}, users: map[string]User{}, tokens: map[string]Token{},
		nextPID: 1000, timers: map[*time.Timer]bool{}, forgotten: map[string]bool{},
	}
	s.routes = s.table()
	for _, u := range s.options.Users {
		s.users[u.Name] = u
	}
	for _, t := range s.options.Tokens {
		s.tokens[t.ID] = t
	}
	for _, p := range s.options.Pools {
		s.pools[p] = true
	}
	if err := s.restore(); err != nil {
		return nil, err
	}
	if s.authority != nil {
		return s, nil
	}
	var err error
	s.authority, err = newAuthority()
	return s, err
}

// Close cuts the power. Running tasks end without a result.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for t := range s.timers {
		t.Stop()
	}
	return s.write()
}

// SetToken adds an API token, or changes its secret and rights.
func (s *Server) SetToken(t Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[t.ID] = t
}

// RemoveToken revokes an API token.
func (s *Server) RemoveToken(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, id)
}

// SetUser adds a user, or changes its password and rights.
func (s *Server) SetUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[u.Name] = u
	for id, t := range s.tickets {
		if t.user == u.Name {
			delete(s.tickets, id)
		}
	}
}

// SetOffline disconnects a node from the network, or connects it again. Its machines do not change.
func (s *Server) SetOffline(name string, offline bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := append([]Node(nil), s.options.Nodes...)
	for i := range nodes {
		if nodes[i].Name == name {
			nodes[i].Offline = offline
		}
	}
	s.options.Nodes = nodes
	delete(s.forgotten, name)
}

// ForgetStatistics has the cluster forget the statistics of a host that is offline, as it does after five minutes. Of its machines it then lists the VMID, the
// lock and the tags only.
func (s *Server) ForgetStatistics(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten[name] = true
}

// DisableHA ends the error state of a machine for high availability, as ha-manager set --state disabled does.
func (s *Server) DisableHA(id int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[id]
	if m == nil {
		return fmt.Errorf("disable high availability of machine %d: there is none", id)
	}
	m.haFailed = false
	return nil
}

// RemoveNode removes a node from the cluster, as pvecm delnode does. Its disks are lost, and its machines stay listed until
// RemoveConfig.
func (s *Server) RemoveNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.Nodes = slices.DeleteFunc(slices.Clone(s.options.Nodes), func(n Node) bool { return n.Name == name })
	maps.DeleteFunc(s.volumes, func(key volumeKey, _ *volume) bool { return key.Node == name })
}

// RemoveStorage removes a storage from the configuration of the cluster, as pvesm remove does. What is on it stays there.
func (s *Server) RemoveStorage(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.Storages = slices.DeleteFunc(slices.Clone(s.options.Storages), func(st Storage) bool { return st.Name == name })
}

// RemoveConfig removes the configuration of a machine from the file system of the cluster, which keeps its disks.
func (s *Server) RemoveConfig(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.machines, id)
}

// Machine is a machine as a test sees it.
type Machine struct {
	ID     int
	Node   string
	Config map[string]string
	// Pending has the options that differ from Config at the next start.
	Pending map[string]string
	Pool    string
	// Firewall has the options of its firewall.
	Firewall map[string]string
	Running  bool
	// Starts is the number of its starts.
	Starts int
}

// Machines returns all machines, including templates.
func (s *Server) Machines() []Machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Machine
	for _, m := range s.machines {
		all = append(all, Machine{ID: m.ID, Node: m.Node, Config: maps.Clone(m.Config), Pending: maps.Clone(m.Pending), Pool: m.Pool, Firewall: maps.Clone(m.Firewall), Running: m.Running, Starts: m.Starts})
	}
	return all
}

// SetFirewall sets the options of a machine's firewall, as a user does on the web page.
func (s *Server) SetFirewall(id int, options map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machines[id]; m != nil {
		m.Firewall = maps.Clone(options)
	}
}

// AddMachine adds a machine of another owner, with new volumes for the drives of its configuration.
// With template set to 1 it is a template. image is the source of the content of its first disk.
func (s *Server) AddMachine(m Machine, image string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.host(m.Node); !ok {
		return fmt.Errorf("add machine %d: there is no node %s", m.ID, m.Node)
	}
	if err := s.claimed(m.ID); err != nil {
		return fmt.Errorf("add machine %d: %w", m.ID, err)
	}
	config := maps.Clone(m.Config)
	made, err := s.makeDrives(&task{}, m.Node, m.ID, config)
	if err != nil {
		return fmt.Errorf("add machine %d: %w", m.ID, err)
	}
	if len(made) > 0 {
		s.volumes[made[0]].Image = image
	}
	added := &machine{ID: m.ID, Node: m.Node, Pool: m.Pool, Config: config}
	if added.template() {
		if err := s.becomeBases(added); err != nil {
			return fmt.Errorf("add machine %d: %w", m.ID, err)
		}
	}
	s.machines[m.ID] = added
	s.save()
	return nil
}

// Set changes an option of a machine as an administrator does.
func (s *Server) Set(id int, option, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[id]
	if m == nil {
		return fmt.Errorf("set %s of machine %d: there is none", option, id)
	}
	m.Config[option] = value
	return nil
}

// Freeze has QEMU stop to execute the guest of a running machine, with a run state such as paused or io-error. An empty state continues it, as
// qm resume does.
func (s *Server) Freeze(id int, state string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[id]
	if m == nil || !m.Running {
		return fmt.Errorf("freeze machine %d: there is none that runs", id)
	}
	m.frozen = state
	return nil
}

// Volumes returns the names of all volumes of machines, with their storage.
func (s *Server) Volumes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for key := range s.volumes {
		all = append(all, key.id())
	}
	return all
}

// resolve returns the node of a request. Localhost is the one that answers the request.
func (s *Server) resolve(name string) (Node, bool) {
	if name != "localhost" {
		return s.host(name)
	}
	i := slices.IndexFunc(s.options.Nodes, func(n Node) bool { return !n.Offline })
	if i < 0 {
		return Node{}, false
	}
	return s.options.Nodes[i], true
}

// host returns the node with a name.
func (s *Server) host(name string) (Node, bool) {
	for _, n := range s.options.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

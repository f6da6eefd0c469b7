package inventory

import "slices"

// rebuild makes the items of everything that has changed since the last commit,
// and of what depends on it, by topic and identifier; nil stands for an item that
// is gone. It then forgets what has changed.
func (s *Store) rebuild() map[Topic]map[string]*Item {
	s.spread()
	items := map[Topic]map[string]*Item{}
	for _, kind := range Kinds {
		for key, old := range s.before[kind] {
			drop(items, old)
			add(items, s.items(s.objects[kind][key]))
		}
		for key := range s.again[kind] {
			if _, done := s.before[kind][key]; !done {
				drop(items, s.objects[kind][key])
				add(items, s.items(s.objects[kind][key]))
			}
		}
		s.before[kind], s.again[kind] = map[Key]*Object{}, map[Key]struct{}{}
	}
	return items
}

// drop marks the items of an object that has changed as gone, until add says
// otherwise.
func drop(into map[Topic]map[string]*Item, old *Object) {
	if old == nil {
		return
	}
	gone := func(topic Topic, id string) {
		if into[topic] == nil {
			into[topic] = map[string]*Item{}
		}
		into[topic][id] = nil
	}
	if topic, ok := topicOf[old.Kind]; ok {
		gone(topic, old.UID)
	}
	switch f := old.Facts.(type) {
	case *Address:
		for _, n := range f.Interfaces {
			for _, address := range n.Addresses {
				gone(TopicAllocations, reservationID(old, n, address))
			}
		}
	case *Provider:
		for _, h := range f.Hosts {
			gone(TopicHosts, hostID(old, h))
		}
	}
}

// topicOf is the topic that the objects of a kind have one item each in.
var topicOf = map[Kind]Topic{
	KindNetwork: TopicNetworks, KindAddress: TopicAddresses, KindAllocation: TopicAllocations,
	KindMachine: TopicMachines, KindProvider: TopicProviders, KindCluster: TopicClusters,
	KindNode: TopicHosts, KindVM: TopicVMs,
}

func add(into map[Topic]map[string]*Item, items []*Item) {
	for _, i := range items {
		if into[i.Topic] == nil {
			into[i.Topic] = map[string]*Item{}
		}
		into[i.Topic][i.ID] = i
	}
}

// items makes the items that tell of an object, which may be nil.
func (s *Store) items(o *Object) []*Item {
	if o == nil {
		return nil
	}
	switch f := o.Facts.(type) {
	case *Network:
		return []*Item{networkItem(o)}
	case *Address:
		return append(reservationItems(o), addressItem(o))
	case *Allocation:
		return []*Item{allocationItem(o)}
	case *Machine:
		return []*Item{machineItem(o, s.operatorOf(f.Provider))}
	case *Provider:
		items := []*Item{providerItem(o)}
		for _, h := range f.Hosts {
			if f.Local && isHost(s.objects[KindNode][Key{Name: h.Name}]) {
				continue // the node tells of itself, and more
			}
			items = append(items, providerHostItem(o, h, s.loadOfMachines(place(o.Name, h.Name))))
		}
		return items
	case *Cluster:
		return []*Item{s.clusterItem(o, f)}
	case *Node:
		if !f.Host {
			return nil
		}
		provider, used := s.localProvider(o.Name)
		return []*Item{nodeItem(o, provider, used, s.loadOfInstances(o.Name))}
	case *VM:
		var running *Instance
		if vmi := s.objects[KindVMI][o.Key]; vmi != nil {
			running = vmi.Facts.(*Instance)
		}
		return []*Item{vmItem(o, running)}
	default:
		return nil
	}
}

// operatorOf is the type of a provider. A machine that names none is made by the
// only one, or the one that is marked default.
func (s *Store) operatorOf(provider string) string {
	if provider != "" {
		if o := s.objects[KindProvider][Key{Name: provider}]; o != nil {
			return o.Facts.(*Provider).Type
		}
		return ""
	}
	for _, o := range s.objects[KindProvider] {
		if p := o.Facts.(*Provider); p.Default || len(s.objects[KindProvider]) == 1 {
			return p.Type
		}
	}
	return ""
}

// localProvider is the name of the provider that makes machines on the nodes of
// this cluster, or empty: of several the default, or else the first by name. used is
// what it has measured of a node.
func (s *Store) localProvider(node string) (name string, used Usage) {
	var found *Provider
	for _, o := range s.objects[KindProvider] {
		if p := o.Facts.(*Provider); p.Local && (found == nil || p.Default || (o.Name < name && !found.Default)) {
			name, found = o.Name, p
		}
	}
	if found != nil {
		if i := slices.IndexFunc(found.Hosts, func(h ProviderHost) bool { return h.Name == node }); i >= 0 {
			used = found.Hosts[i].Used
		}
	}
	return name, used
}

func (s *Store) clusterItem(o *Object, f *Cluster) *Item {
	uses := Uses{Talos: f.Provider == OperatorTalos, Kea: s.allocationOf(o.Namespace, f.Network) == "dhcp"}
	machines := s.machinesOfCluster[place(o.Namespace, o.Name)]
	for _, m := range machines {
		switch s.operatorOf(m.Facts.(*Machine).Provider) {
		case OperatorProxmox:
			uses.Proxmox = true
		case OperatorKubeVirt:
			uses.KubeVirt = true
		}
	}
	return clusterItem(o, uses, len(machines))
}

// allocationOf is how a network gives addresses out. No name means the only
// network of the namespace.
func (s *Store) allocationOf(namespace, name string) string {
	if name != "" {
		if o := s.objects[KindNetwork][Key{namespace, name}]; o != nil {
			return o.Facts.(*Network).Allocation
		}
		return ""
	}
	if networks := s.networksIn[namespace]; len(networks) == 1 {
		for _, o := range networks {
			return o.Facts.(*Network).Allocation
		}
	}
	return ""
}

func (s *Store) loadOfMachines(host string) (l load) {
	for _, o := range s.machinesOnHost[host] {
		m := o.Facts.(*Machine)
		l.add(m.CPUs, m.Memory)
	}
	return l
}

func (s *Store) loadOfInstances(host string) (l load) {
	for _, o := range s.instancesOnHost[host] {
		i := o.Facts.(*Instance)
		l.add(i.CPUs, i.Memory)
	}
	return l
}

// spread marks what depends on something that has changed.
func (s *Store) spread() {
	for key, old := range s.before[KindMachine] {
		s.spreadMachine(old)
		s.spreadMachine(s.objects[KindMachine][key])
	}
	for key, old := range s.before[KindVMI] {
		s.again[KindVM][key] = struct{}{}
		s.spreadInstance(old)
		s.spreadInstance(s.objects[KindVMI][key])
	}
	for key, old := range s.before[KindNetwork] {
		if now := s.objects[KindNetwork][key]; allocates(old) != allocates(now) {
			for cluster := range s.clustersIn[key.Namespace] {
				s.again[KindCluster][cluster] = struct{}{}
			}
		}
	}
	for key, old := range s.before[KindProvider] {
		if hypervisor(old) != hypervisor(s.objects[KindProvider][key]) {
			s.allAgain(KindMachine)
			s.allAgain(KindCluster)
			break
		}
	}
	for key, old := range s.before[KindProvider] {
		if hypervisor(old).local || hypervisor(s.objects[KindProvider][key]).local {
			s.allAgain(KindNode)
			break
		}
	}
	for key, old := range s.before[KindNode] {
		if isHost(old) != isHost(s.objects[KindNode][key]) {
			s.allAgain(KindProvider)
			break
		}
	}
	for kind, keys := range s.again {
		for key := range keys {
			if s.objects[kind][key] == nil {
				delete(keys, key)
			}
		}
	}
}

func (s *Store) spreadMachine(o *Object) {
	if o == nil {
		return
	}
	m := o.Facts.(*Machine)
	if m.Cluster != "" {
		s.again[KindCluster][Key{o.Namespace, m.Cluster}] = struct{}{}
	}
	if m.Host != "" {
		s.again[KindProvider][Key{Name: m.Provider}] = struct{}{}
	}
}

func (s *Store) spreadInstance(o *Object) {
	if o != nil {
		s.again[KindNode][Key{Name: o.Facts.(*Instance).Host}] = struct{}{}
	}
}

func (s *Store) allAgain(kind Kind) {
	for key := range s.objects[kind] {
		s.again[kind][key] = struct{}{}
	}
}

func allocates(network *Object) string {
	if network == nil {
		return ""
	}
	return network.Facts.(*Network).Allocation
}

// isHost tells whether a node, which may be nil, is one that KubeVirt runs on.
func isHost(node *Object) bool { return node != nil && node.Facts.(*Node).Host }

// relied is what of a provider its machines depend on.
type relied struct {
	kind         string
	local, usual bool
}

func hypervisor(provider *Object) (r relied) {
	if provider != nil {
		p := provider.Facts.(*Provider)
		r = relied{kind: p.Type, local: p.Local, usual: p.Default}
	}
	return r
}

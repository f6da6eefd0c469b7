package inventory

import (
	"slices"

	"github.com/vitistack/stack/apis/backend"
)

// rebuild returns the items of the objects that have changed since the last commit and of their dependents, by topic and
// identifier. A removed item is nil. rebuild then forgets the changes.
func (s *Store) rebuild() map[Topic]map[string]*Item {
	s.markDependents()
	items := map[Topic]map[string]*Item{}
	for _, kind := range Kinds {
		for key, old := range s.before[kind] {
			dropItems(items, old)
			addItems(items, s.items(s.objects[kind][key]))
		}
		for key := range s.dependents[kind] {
			if _, done := s.before[kind][key]; !done {
				dropItems(items, s.objects[kind][key])
				addItems(items, s.items(s.objects[kind][key]))
			}
		}
		s.before[kind], s.dependents[kind] = map[Key]*Object{}, map[Key]struct{}{}
	}
	return items
}

// dropItems marks the items of a changed object as removed. addItems adds the existing ones again.
func dropItems(into map[Topic]map[string]*Item, old *Object) {
	if old == nil {
		return
	}
	remove := func(topic Topic, id string) {
		if into[topic] == nil {
			into[topic] = map[string]*Item{}
		}
		into[topic][id] = nil
	}
	if topic, ok := topicOf[old.Kind]; ok {
		remove(topic, old.UID)
	}
	switch f := old.Facts.(type) {
	case *Address:
		for _, n := range f.Interfaces {
			for _, address := range n.Addresses {
				remove(TopicAllocations, reservationID(old, n, address))
			}
		}
	case *Provider:
		for _, h := range f.Hosts {
			remove(TopicHosts, hostID(old, h))
		}
	}
}

// topicOf maps the kinds whose objects have one item each to the topic of that item.
var topicOf = map[Kind]Topic{
	KindNetwork: TopicNetworks, KindConfiguration: TopicAddresses, KindAllocation: TopicAllocations,
	KindMachine: TopicMachines, KindProvider: TopicProviders, KindCluster: TopicClusters,
	KindNode: TopicHosts, KindVM: TopicVMs, KindBackup: TopicBackups,
	KindTemplate: TopicTemplates,
}

func addItems(into map[Topic]map[string]*Item, items []*Item) {
	for _, i := range items {
		if into[i.Topic] == nil {
			into[i.Topic] = map[string]*Item{}
		}
		into[i.Topic][i.ID] = i
	}
}

// items returns the items of an object. The object may be nil.
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
		return s.providerItems(o, f)
	case *Cluster:
		return []*Item{s.clusterItem(o, f)}
	case *Template:
		return []*Item{templateItem(o)}
	case *Backup:
		return []*Item{backupItem(o)}
	case *Node:
		if !f.Host {
			return nil
		}
		provider, used := s.localProvider(o.Name)
		local := s.objects[KindProvider][Key{Name: provider}]
		return []*Item{nodeItem(o, provider, local != nil && !s.isAnswering(local), used, s.loadOfInstances(o.Name))}
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

// providerItems returns the item of a MachineProvider and those of its hosts.
func (s *Store) providerItems(o *Object, f *Provider) []*Item {
	items := []*Item{providerItem(o)}
	for _, h := range f.Hosts {
		if f.Local && isHost(s.objects[KindNode][Key{Name: h.Name}]) {
			continue // the item of the node shows more
		}
		items = append(items, providerHostItem(o, h, !s.isAnswering(o), s.loadOfMachines(place(o.Name, h.Name))))
	}
	return items
}

// operatorOf returns the type of a provider. An empty name stands for the only provider, or for the default one.
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

// localProvider returns the name of the provider that creates machines on the nodes of this cluster, or nothing: the default one of
// several, or else the first by name. used is what the provider has measured of a node.
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
	uses := Uses{backend.Talos: f.Provider == backend.Talos, backend.Kea: s.allocationOf(o.Namespace, f.Network) == "dhcp"}
	machines := s.machinesOfCluster[place(o.Namespace, o.Name)]
	for _, m := range machines {
		uses[s.operatorOf(m.Facts.(*Machine).Provider)] = true
	}
	return clusterItem(o, uses, len(machines), s.following(f))
}

// allocationOf returns how a network allocates addresses. An empty name stands for the only network of the namespace.
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

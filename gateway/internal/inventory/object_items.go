package inventory

import (
	"slices"

	"github.com/vitistack/stack/apis/backend"
)

// items returns the items of an object. The object may be nil.
func (s *objectSet) items(o *Object) []*Item {
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
		local := s.byKind[KindProvider][Key{Name: provider}]
		return []*Item{nodeItem(o, provider, local != nil && !s.isAnswering(local), used, s.loadOfInstances(o.Name))}
	case *VM:
		var running *Instance
		if vmi := s.byKind[KindVMI][o.Key]; vmi != nil {
			running = vmi.Facts.(*Instance)
		}
		return []*Item{vmItem(o, running)}
	default:
		return nil
	}
}

// providerItems returns the item of a MachineProvider and those of its hosts.
func (s *objectSet) providerItems(o *Object, f *Provider) []*Item {
	items := []*Item{providerItem(o)}
	for _, h := range f.Hosts {
		if f.Local && isHost(s.byKind[KindNode][Key{Name: h.Name}]) {
			continue // the item of the node shows more
		}
		items = append(items, providerHostItem(o, h, !s.isAnswering(o), s.loadOfMachines(place(o.Name, h.Name))))
	}
	return items
}

// operatorOf returns the type of a provider. An empty name stands for the only provider, or for the default one.
func (s *objectSet) operatorOf(provider string) string {
	if provider != "" {
		if o := s.byKind[KindProvider][Key{Name: provider}]; o != nil {
			return o.Facts.(*Provider).Type
		}
		return ""
	}
	for _, o := range s.byKind[KindProvider] {
		if p := o.Facts.(*Provider); p.Default || len(s.byKind[KindProvider]) == 1 {
			return p.Type
		}
	}
	return ""
}

// localProvider returns the name of the provider that creates machines on the nodes of this cluster, or nothing: the default one of
// several, or else the first by name. used is what the provider has measured of a node.
func (s *objectSet) localProvider(node string) (name string, used Usage) {
	var found *Provider
	for _, o := range s.byKind[KindProvider] {
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

// clusterItem returns the item of a cluster, with the backends that it uses.
func (s *objectSet) clusterItem(o *Object, f *Cluster) *Item {
	uses := Uses{backend.Talos: f.Provider == backend.Talos, backend.Kea: s.allocationOf(o.Namespace, f.Network) == "dhcp"}
	machines := s.machinesOfCluster[place(o.Namespace, o.Name)]
	for _, m := range machines {
		uses[s.operatorOf(m.Facts.(*Machine).Provider)] = true
	}
	return clusterItem(o, uses, len(machines), s.following(f))
}

// allocationOf returns how a network allocates addresses. An empty name stands for the only network of the namespace.
func (s *objectSet) allocationOf(namespace, name string) string {
	if name != "" {
		if o := s.byKind[KindNetwork][Key{namespace, name}]; o != nil {
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

// loadOfMachines returns what the Machines on a host of a MachineProvider have in all.
func (s *objectSet) loadOfMachines(host string) (l load) {
	for _, o := range s.machinesOnHost[host] {
		m := o.Facts.(*Machine)
		l.add(m.CPUs, m.Memory)
	}
	return l
}

// loadOfInstances returns what the virtual machines of KubeVirt on a node have in all.
func (s *objectSet) loadOfInstances(host string) (l load) {
	for _, o := range s.instancesOnHost[host] {
		i := o.Facts.(*Instance)
		l.add(i.CPUs, i.Memory)
	}
	return l
}

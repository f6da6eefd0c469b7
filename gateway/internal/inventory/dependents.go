package inventory

// markDependents marks the objects whose items depend on an object that has changed.
func (s *Store) markDependents() {
	for key, old := range s.before[KindMachine] {
		s.markOwnersOfMachine(old)
		s.markOwnersOfMachine(s.objects[KindMachine][key])
	}
	for key, old := range s.before[KindVMI] {
		s.dependents[KindVM][key] = struct{}{}
		s.markNodeOfInstance(old)
		s.markNodeOfInstance(s.objects[KindVMI][key])
	}
	for key, old := range s.before[KindNetwork] {
		if now := s.objects[KindNetwork][key]; allocationType(old) != allocationType(now) {
			for cluster := range s.clustersIn[key.Namespace] {
				s.dependents[KindCluster][cluster] = struct{}{}
			}
		}
	}
	for key, old := range s.before[KindProvider] {
		if traitsOf(old) != traitsOf(s.objects[KindProvider][key]) {
			s.markAll(KindMachine)
			s.markAll(KindCluster)
			break
		}
	}
	for key, old := range s.before[KindProvider] {
		if traitsOf(old).local || traitsOf(s.objects[KindProvider][key]).local {
			s.markAll(KindNode)
			break
		}
	}
	s.markFollowers()
	if len(s.before[KindBackends]) > 0 {
		s.markAll(KindProvider)
		s.markAll(KindNode)
	}
	for key, old := range s.before[KindNode] {
		if isHost(old) != isHost(s.objects[KindNode][key]) {
			s.markAll(KindProvider)
			break
		}
	}
	for kind, keys := range s.dependents {
		for key := range keys {
			if s.objects[kind][key] == nil {
				delete(keys, key)
			}
		}
	}
}

func (s *Store) markOwnersOfMachine(o *Object) {
	if o == nil {
		return
	}
	m := o.Facts.(*Machine)
	if m.Cluster != "" {
		s.dependents[KindCluster][Key{o.Namespace, m.Cluster}] = struct{}{}
	}
	if m.Host != "" {
		s.dependents[KindProvider][Key{Name: m.Provider}] = struct{}{}
	}
}

func (s *Store) markNodeOfInstance(o *Object) {
	if o != nil {
		s.dependents[KindNode][Key{Name: o.Facts.(*Instance).Host}] = struct{}{}
	}
}

func (s *Store) markAll(kind Kind) {
	for key := range s.objects[kind] {
		s.dependents[kind][key] = struct{}{}
	}
}

func allocationType(network *Object) string {
	if network == nil {
		return ""
	}
	return network.Facts.(*Network).Allocation
}

// isHost reports whether KubeVirt runs virtual machines on a node. The node may be nil.
func isHost(node *Object) bool { return node != nil && node.Facts.(*Node).Host }

// providerTraits are what the items of machines, clusters and nodes show of a provider.
type providerTraits struct {
	kind             string
	local, isDefault bool
}

func traitsOf(provider *Object) (t providerTraits) {
	if provider != nil {
		p := provider.Facts.(*Provider)
		t = providerTraits{kind: p.Type, local: p.Local, isDefault: p.Default}
	}
	return t
}

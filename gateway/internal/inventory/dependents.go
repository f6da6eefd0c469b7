package inventory

// markDependents marks the objects whose items depend on an object that has changed.
func (c *changeSet) markDependents() {
	for key, old := range c.before[KindMachine] {
		c.markOwnersOfMachine(old)
		c.markOwnersOfMachine(c.objects.byKind[KindMachine][key])
	}
	for key, old := range c.before[KindVMI] {
		c.dependents[KindVM][key] = struct{}{}
		c.markNodeOfInstance(old)
		c.markNodeOfInstance(c.objects.byKind[KindVMI][key])
	}
	for key, old := range c.before[KindNetwork] {
		if now := c.objects.byKind[KindNetwork][key]; allocationType(old) != allocationType(now) {
			for cluster := range c.objects.clustersIn[key.Namespace] {
				c.dependents[KindCluster][cluster] = struct{}{}
			}
		}
	}
	for key, old := range c.before[KindProvider] {
		if traitsOf(old) != traitsOf(c.objects.byKind[KindProvider][key]) {
			c.markAll(KindMachine)
			c.markAll(KindCluster)
			break
		}
	}
	for key, old := range c.before[KindProvider] {
		if traitsOf(old).local || traitsOf(c.objects.byKind[KindProvider][key]).local {
			c.markAll(KindNode)
			break
		}
	}
	c.markFollowers()
	if len(c.before[KindBackends]) > 0 {
		c.markAll(KindProvider)
		c.markAll(KindNode)
	}
	for key, old := range c.before[KindNode] {
		if isHost(old) != isHost(c.objects.byKind[KindNode][key]) {
			c.markAll(KindProvider)
			break
		}
	}
	for kind, keys := range c.dependents {
		for key := range keys {
			if c.objects.byKind[kind][key] == nil {
				delete(keys, key)
			}
		}
	}
}

// markOwnersOfMachine marks the cluster and the MachineProvider of a Machine, which may be nil.
func (c *changeSet) markOwnersOfMachine(o *Object) {
	if o == nil {
		return
	}
	m := o.Facts.(*Machine)
	if m.Cluster != "" {
		c.dependents[KindCluster][Key{o.Namespace, m.Cluster}] = struct{}{}
	}
	if m.Host != "" {
		c.dependents[KindProvider][Key{Name: m.Provider}] = struct{}{}
	}
}

// markNodeOfInstance marks the node of a VirtualMachineInstance, which may be nil.
func (c *changeSet) markNodeOfInstance(o *Object) {
	if o != nil {
		c.dependents[KindNode][Key{Name: o.Facts.(*Instance).Host}] = struct{}{}
	}
}

// markAll marks all objects of a kind.
func (c *changeSet) markAll(kind Kind) {
	for key := range c.objects.byKind[kind] {
		c.dependents[kind][key] = struct{}{}
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

package inventory

// changeSet has what has changed since the last commit. It is not safe for concurrent use: the Store guards it.
type changeSet struct {
	objects *objectSet
	// before maps each object that has changed to its state at the last commit, or to nil if it did not exist.
	before map[Kind]map[Key]*Object
	// dependents are objects that have not changed, but whose items may have.
	dependents map[Kind]map[Key]struct{}
}

func newChangeSet(objects *objectSet) *changeSet {
	c := &changeSet{objects: objects, before: map[Kind]map[Key]*Object{}, dependents: map[Kind]map[Key]struct{}{}}
	for _, k := range Kinds {
		c.before[k], c.dependents[k] = map[Key]*Object{}, map[Key]struct{}{}
	}
	return c
}

// remember keeps the state that an object had at the last commit. old is its state before a change, or nil.
func (c *changeSet) remember(kind Kind, key Key, old *Object) {
	if _, ok := c.before[kind][key]; !ok {
		c.before[kind][key] = old
	}
}

// takeItems returns the items of the objects that have changed since the last commit and of their dependents, by topic and
// identifier. A removed item is nil. takeItems then forgets the changes.
func (c *changeSet) takeItems() map[Topic]map[string]*Item {
	c.markDependents()
	items := map[Topic]map[string]*Item{}
	for _, kind := range Kinds {
		objects := c.objects.byKind[kind]
		for key, old := range c.before[kind] {
			dropItems(items, old)
			addItems(items, c.objects.items(objects[key]))
		}
		for key := range c.dependents[kind] {
			if _, done := c.before[kind][key]; !done {
				dropItems(items, objects[key])
				addItems(items, c.objects.items(objects[key]))
			}
		}
		c.before[kind], c.dependents[kind] = map[Key]*Object{}, map[Key]struct{}{}
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

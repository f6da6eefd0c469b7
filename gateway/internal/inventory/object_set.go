package inventory

import (
	"maps"
	"slices"
)

// objectSet has the objects by kind and key, and indexes for the relations that items show. It is not safe for concurrent use: the
// Store guards it.
type objectSet struct {
	byKind map[Kind]map[Key]*Object

	machinesOfCluster index
	machinesOnHost    index
	instancesOnHost   index
	networksIn        index
	clustersIn        index
}

func newObjectSet() *objectSet {
	s := &objectSet{
		byKind:            map[Kind]map[Key]*Object{},
		machinesOfCluster: index{}, machinesOnHost: index{}, instancesOnHost: index{}, networksIn: index{}, clustersIn: index{},
	}
	for _, k := range Kinds {
		s.byKind[k] = map[Key]*Object{}
	}
	return s
}

// list returns the objects of a kind, in no order.
func (s *objectSet) list(kind Kind) []*Object { return slices.Collect(maps.Values(s.byKind[kind])) }

// put stores an object in place of the one with its key.
func (s *objectSet) put(o *Object) {
	s.remove(o.Kind, o.Key)
	s.byKind[o.Kind][o.Key] = o
	s.indexes(o, func(x index, at string) { x.put(at, o) })
}

// remove removes an object if it exists.
func (s *objectSet) remove(kind Kind, key Key) {
	if old := s.byKind[kind][key]; old != nil {
		s.indexes(old, func(x index, at string) { x.remove(at, old) })
		delete(s.byKind[kind], key)
	}
}

// indexes calls visit for each index of an object, with the object's key in it.
func (s *objectSet) indexes(o *Object, visit func(x index, at string)) {
	switch o.Kind {
	case KindMachine:
		visit(s.machinesOfCluster, clusterOf(o))
		visit(s.machinesOnHost, hostOf(o))
	case KindVMI:
		visit(s.instancesOnHost, o.Facts.(*Instance).Host)
	case KindNetwork:
		visit(s.networksIn, o.Namespace)
	case KindCluster:
		visit(s.clustersIn, o.Namespace)
	}
}

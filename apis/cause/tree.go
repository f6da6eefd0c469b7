package cause

import "slices"

// Node is an object in a tree, with what belongs to it.
type Node struct {
	Ref
	// State is the phase of the object, or its reason if it is not Ready.
	State string `json:"state,omitempty"`
	Ready bool   `json:"ready"`
	// Detail has what the object provides, such as addresses.
	Detail string `json:"detail,omitempty"`
	// Shared is whether other objects use it too. What belongs to it is left out.
	Shared bool `json:"shared,omitempty"`
	// Missing is whether an object names it that is not in the Set.
	Missing bool   `json:"missing,omitempty"`
	Parts   []Part `json:"parts,omitempty"`
	Below   []Node `json:"below,omitempty"`
}

// Tree returns an object with everything that belongs to it: what was created for it, what it
// uses, and the Leases that it holds. Objects that others use too, such as the network, are there
// once, without what belongs to them. It reports whether the Set has the object.
func (s *Set) Tree(r Ref) (Node, bool) {
	o := s.objects[r]
	if o == nil {
		return Node{}, false
	}
	return s.node(o, map[Ref]bool{}), true
}

func (s *Set) node(o *Object, seen map[Ref]bool) Node {
	seen[o.Ref] = true
	n := nodeOf(o)
	n.Parts = o.parts
	for _, used := range s.usedBy(o) {
		next := s.objects[used]
		if seen[used] || next != nil && next.owner == o.Ref {
			continue
		}
		seen[used] = true
		below := Node{Ref: used, Missing: true, State: "not found"}
		if next != nil {
			below = nodeOf(next)
			below.Shared = true
		}
		n.Below = append(n.Below, below)
	}
	for _, next := range s.belongings(o) {
		if !seen[next.Ref] {
			n.Below = append(n.Below, s.node(next, seen))
		}
	}
	return n
}

// belongings returns what belongs to an object alone: what was created for it, the Leases that it
// holds, and the objects that a network or a MachineProvider serves.
func (s *Set) belongings(o *Object) []*Object {
	all := slices.Clone(s.owned[o.Ref])
	all = append(all, s.held[o.UID]...)
	switch o.Kind {
	case kindNetwork:
		for _, user := range s.users(o) {
			if user.Kind == kindConfiguration || user.Kind == kindAllocation && user.owner.Kind != kindConfiguration {
				all = append(all, user)
			}
		}
	case kindProvider, kindCluster:
		for _, user := range s.users(o) {
			if user.Kind == kindMachine || user.Kind == kindBackup {
				all = append(all, user)
			}
		}
	}
	slices.SortFunc(all, compareObjects)
	return slices.Compact(all)
}

// usedBy returns what an object uses and does not own.
func (s *Set) usedBy(o *Object) []Ref {
	all := slices.Clone(o.uses)
	if networks := s.networks[o.Namespace]; o.anyNetwork && len(networks) == 1 {
		all = append(all, networks[0].Ref)
	}
	return all
}

func nodeOf(o *Object) Node {
	state := o.Phase
	if state == "" && o.reports() && o.IsReady() {
		state = "Ready"
	}
	if reason := o.ready().Reason; !o.IsReady() && reason != "" {
		state = reason
	}
	if o.Deleting {
		state = "Deleting"
	}
	return Node{Ref: o.Ref, State: state, Ready: o.IsReady(), Detail: o.Detail}
}

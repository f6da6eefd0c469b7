package cause

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Set is a group of objects among which causes are looked for. Objects that it lacks, for example
// because the caller may not read them, end a chain earlier.
type Set struct {
	objects map[Ref]*Object
	// owned are the objects that were created for an object.
	owned map[Ref][]*Object
	// networks are the NetworkNamespaces of each namespace.
	networks map[string][]*Object
	// held are the Leases by the UID of their holder.
	held map[string][]*Object
}

// NewSet returns a Set of objects.
func NewSet(objects ...*Object) *Set {
	s := &Set{objects: map[Ref]*Object{}, owned: map[Ref][]*Object{}, networks: map[string][]*Object{}, held: map[string][]*Object{}}
	for _, o := range objects {
		s.objects[o.Ref] = o
	}
	for _, o := range s.objects {
		if o.owner.Name != "" {
			s.owned[o.owner] = append(s.owned[o.owner], o)
		}
		if o.Kind == kindNetwork {
			s.networks[o.Namespace] = append(s.networks[o.Namespace], o)
		}
		if o.holder != "" {
			s.held[o.holder] = append(s.held[o.holder], o)
		}
	}
	for _, group := range s.owned {
		slices.SortFunc(group, compareObjects)
	}
	for _, group := range s.held {
		slices.SortFunc(group, compareObjects)
	}
	return s
}

// DecodeSet returns a Set of objects as the API server returns them.
func DecodeSet(list []unstructured.Unstructured) (*Set, error) {
	objects := make([]*Object, 0, len(list))
	for i := range list {
		o, err := Decode(&list[i])
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return NewSet(objects...), nil
}

// Find returns the object with a name, or nil.
func (s *Set) Find(r Ref) *Object { return s.objects[r] }

// rank orders kinds from the top of the stack to the bottom.
var rank = map[string]int{kindCluster: 0, kindMachine: 1, kindConfiguration: 2, kindAllocation: 3, kindNetwork: 4, kindProvider: 5, kindBackup: 6, kindTemplate: 7}

func compareRefs(a, b Ref) int {
	rankOf := func(kind string) int {
		if n, ok := rank[kind]; ok {
			return n
		}
		return len(rank)
	}
	return cmp.Or(cmp.Compare(rankOf(a.Kind), rankOf(b.Kind)), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), compareNames(a.Name, b.Name))
}

func compareObjects(a, b *Object) int { return compareRefs(a.Ref, b.Ref) }

// compareNames orders names with numbers by the numbers: web-2 comes before web-10.
func compareNames(a, b string) int {
	i, j := strings.LastIndexByte(a, '-'), strings.LastIndexByte(b, '-')
	if i == j && i > 0 && a[:i] == b[:j] && len(a) != len(b) && isNumber(a[i+1:]) && isNumber(b[j+1:]) {
		return cmp.Compare(len(a), len(b))
	}
	return strings.Compare(a, b)
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// needed returns the objects of the Set that an object needs: the objects that it names, the only
// network of its namespace if it names none, and the objects that were created for it.
func (s *Set) needed(o *Object) []*Object {
	var all []*Object
	add := func(next *Object) {
		if next != nil && next != o && !slices.Contains(all, next) {
			all = append(all, next)
		}
	}
	for _, r := range o.uses {
		add(s.objects[r])
	}
	if networks := s.networks[o.Namespace]; o.anyNetwork && len(networks) == 1 {
		add(networks[0])
	}
	for _, next := range s.owned[o.Ref] {
		add(next)
	}
	if o.Kind == kindMachine && o.owner.Kind == kindCluster {
		add(s.objects[o.owner])
	}
	return all
}

// users returns the objects of the Set that name an object.
func (s *Set) users(o *Object) []*Object {
	var all []*Object
	for _, next := range s.objects {
		if next != o && (slices.Contains(next.uses, o.Ref) || o.Kind == kindNetwork && next.anyNetwork && next.Namespace == o.Namespace) {
			all = append(all, next)
		}
	}
	slices.SortFunc(all, compareObjects)
	return all
}

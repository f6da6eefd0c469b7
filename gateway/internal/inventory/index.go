package inventory

// index finds objects by a key that several objects share.
type index map[string]map[Key]*Object

func (x index) put(at string, o *Object) {
	if at == "" {
		return
	}
	if x[at] == nil {
		x[at] = map[Key]*Object{}
	}
	x[at][o.Key] = o
}

func (x index) remove(at string, o *Object) {
	if set, ok := x[at]; ok {
		delete(set, o.Key)
		if len(set) == 0 {
			delete(x, at)
		}
	}
}

// place joins two names that cannot contain a slash.
func place(a, b string) string {
	if b == "" {
		return ""
	}
	return a + "/" + b
}

// clusterOf returns the index key of a machine's cluster.
func clusterOf(o *Object) string {
	return place(o.Namespace, o.Facts.(*Machine).Cluster)
}

// hostOf returns the index key of a machine's host.
func hostOf(o *Object) string {
	m := o.Facts.(*Machine)
	return place(m.Provider, m.Host)
}

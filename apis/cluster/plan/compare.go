package plan

// CompareBool returns -1 if a is false and b is true, 1 if a is true and b is false, and 0 if they are equal, as cmp.Compare does for
// ordered types.
func CompareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

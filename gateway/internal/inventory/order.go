package inventory

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
)

// CompareAttribute orders two values of an attribute: numbers, versions and addresses by value, and others as text.
func CompareAttribute(name, a, b string) int {
	switch name {
	case "vlan":
		return compareParsed(a, b, strconv.Atoi, cmp.Compare)
	case "version":
		return compareVersions(a, b)
	case "address":
		return compareParsed(a, b, netip.ParseAddr, netip.Addr.Compare)
	}
	return strings.Compare(a, b)
}

func compareVersions(a, b string) int {
	return compareParsed(a, b, semver.ParseTolerant, semver.Version.Compare)
}

// compareParsed puts what cannot be parsed first, in the order of its text.
func compareParsed[T any](a, b string, parse func(string) (T, error), compare func(a, b T) int) int {
	if a == b {
		return 0
	}
	x, errX := parse(a)
	y, errY := parse(b)
	switch {
	case errX == nil && errY == nil:
		return compare(x, y)
	case errX == nil:
		return 1
	case errY == nil:
		return -1
	}
	return strings.Compare(a, b)
}

package inventory

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"
)

// numeric are the attributes whose values are whole numbers.
var numeric = []string{
	"vlan", "free", "allocated", "cpus", "memoryBytes", "memoryFreeBytes", "diskBytes", "vms", "hosts", "machines", "nodes", "nodesReady", "snapshots", "clusters", "waitingClusters",
}

// CompareAttribute orders two values of an attribute: numbers, versions, addresses and times by value, and others as text.
func CompareAttribute(name, a, b string) int {
	switch name {
	case "version", "talosVersion":
		return compareVersions(a, b)
	case "address":
		return compareParsed(a, b, netip.ParseAddr, netip.Addr.Compare)
	case "createdAt", "lastUpdated", "updatedAt", "lastSuccess":
		return compareParsed(a, b, parseTime, time.Time.Compare)
	}
	if slices.Contains(numeric, name) {
		return compareParsed(a, b, strconv.Atoi, cmp.Compare)
	}
	return strings.Compare(a, b)
}

// CheckAttribute returns an error that says what to write if an attribute cannot have a value.
func CheckAttribute(name, value string) error {
	switch name {
	case "address":
		if _, err := netip.ParseAddr(value); err != nil && value != "" {
			return errors.New("write an address such as 192.0.2.10 or 2001:db8::10")
		}
	case "createdAt", "lastUpdated", "updatedAt", "lastSuccess":
		if _, err := parseTime(value); err != nil {
			return errors.New("write a time such as 2026-01-02T15:04:05Z")
		}
	}
	if slices.Contains(numeric, name) {
		if _, err := strconv.Atoi(value); err != nil {
			return errors.New("write a whole number such as 100")
		}
	}
	return nil
}

func parseTime(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) }

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

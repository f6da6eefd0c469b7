package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"strings"
)

// KindOf returns the kind of an object, which is the name of its Go type.
func KindOf(obj Object) string { return reflect.TypeOf(obj).Elem().Name() }

// Lengths that the API server allows.
const (
	maxName  = 253
	maxLabel = 63
)

// Name joins parts by dashes into the name of an object. A name that would be too
// long is cut, and ends in a hash of the whole, so that different parts still
// give different names.
func Name(parts ...string) string { return fit(strings.Join(parts, "-"), maxName) }

// LabelValue is a name as the value of a label, cut like Name.
func LabelValue(name string) string { return fit(name, maxLabel) }

func fit(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	const digits = 16
	return strings.TrimRight(s[:limit-digits-1], "-.") + "-" + hex.EncodeToString(sum[:digits/2])
}

package v1alpha1

import "strings"

// Normalized returns the MAC address in lower case with colons, so that two spellings of one
// address are equal. The API server admits dashes and capitals as well.
func (m MACAddress) Normalized() string {
	return strings.ReplaceAll(strings.ToLower(string(m)), "-", ":")
}

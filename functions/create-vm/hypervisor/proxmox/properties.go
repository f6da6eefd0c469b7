package proxmox

import (
	"fmt"
	"strconv"
	"strings"
)

// formatValue returns a JSON value as an option of Proxmox VE.
func formatValue(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		if v {
			return "1"
		}
		return "0"
	default:
		return fmt.Sprint(v)
	}
}

// parseProperties returns the properties of an option. A value without a key has the empty key.
func parseProperties(value string) map[string]string {
	found := map[string]string{}
	for part := range strings.SplitSeq(value, ",") {
		key, v, ok := strings.Cut(part, "=")
		if !ok {
			key, v = "", part
		}
		found[key] = v
	}
	return found
}

// parseSize returns the size of a disk in bytes, or 0 if its properties have none.
func parseSize(properties map[string]string) int64 {
	size := properties["size"]
	if size == "" {
		return 0
	}
	shift := map[byte]int{'K': 10, 'M': 20, 'G': 30, 'T': 40}[size[len(size)-1]]
	n, err := strconv.ParseInt(strings.TrimRight(size, "KMGT"), 10, 64)
	if err != nil {
		return 0
	}
	return n << shift
}

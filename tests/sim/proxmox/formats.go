package proxmox

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

var (
	vmidForm    = regexp.MustCompile(`^[1-9][0-9]{2,8}$`)
	nodeForm    = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)
	dnsForm     = regexp.MustCompile(`^([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)
	storageForm = regexp.MustCompile(`(?i)^[a-z][a-z0-9._-]*[a-z0-9]$`)
	bridgeForm  = regexp.MustCompile(`^[-_.\w]+$`)
	macForm     = regexp.MustCompile(`(?i)^[a-f0-9][02468ace](?::[a-f0-9]{2}){5}$`)
	urlEncoded  = regexp.MustCompile(`^[-%a-zA-Z0-9_.!~*'()]*$`)
	tagForm     = regexp.MustCompile(`(?i)^[a-z0-9_][a-z0-9_.+-]*$`)
	poolForm    = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}$`)
	sizeForm    = regexp.MustCompile(`^(\d+(?:\.\d+)?)([KMGT])?(?:iB)?$`)
	optionForm  = regexp.MustCompile(`(?i)^[a-z][a-z0-9_-]+$`)
	bootForm    = regexp.MustCompile(`^(?:ide[0-3]|sata[0-5]|scsi(?:[12]?\d|30)|virtio(?:1[0-5]|\d)|net(?:[12]?\d|3[01])|usb\d+|hostpci\d+)$`)
)

// matching returns a check that rejects values that do not match a pattern.
func matching(form *regexp.Regexp, complaint string) func(string) error {
	return func(s string) error {
		if !form.MatchString(s) {
			return errors.New(complaint)
		}
		return nil
	}
}

var (
	isVMID    = matching(vmidForm, "value does not look like a valid VM ID")
	isNode    = matching(nodeForm, "value does not look like a valid node name")
	isDNSName = matching(dnsForm, "value does not look like a valid DNS name")
	isMAC     = matching(macForm, "value does not look like a valid unicast MAC address")
)

func isStorage(s string) error {
	if !storageForm.MatchString(s) {
		return fmt.Errorf("storage ID '%s' contains illegal characters", s)
	}
	return nil
}

func isBridge(s string) error {
	if !bridgeForm.MatchString(s) {
		return fmt.Errorf("invalid bridge ID '%s'", s)
	}
	return nil
}

func isURLEncoded(s string) error {
	if !urlEncoded.MatchString(s) {
		return fmt.Errorf("invalid urlencoded string: %s", s)
	}
	return nil
}

func isPool(s string) error {
	if !poolForm.MatchString(s) {
		return fmt.Errorf("pool name '%s' contains invalid characters", s)
	}
	return nil
}

func isTags(s string) error {
	for _, tag := range splitList(s) {
		if !tagForm.MatchString(tag) {
			return fmt.Errorf("invalid characters in tag")
		}
	}
	return nil
}

func isOptionList(s string) error {
	for _, id := range splitList(s) {
		if !optionForm.MatchString(id) {
			return fmt.Errorf("invalid configuration ID '%s'", id)
		}
	}
	return nil
}

func isAddressList(s string) error {
	for _, a := range splitList(s) {
		if _, err := netip.ParseAddr(a); err != nil && !dnsForm.MatchString(a) {
			return fmt.Errorf("value '%s' does not look like a valid server name or IP address", a)
		}
	}
	return nil
}

func isBootDevices(s string) error {
	for _, device := range splitList(s) {
		if !bootForm.MatchString(device) {
			return fmt.Errorf("invalid boot device '%s'", device)
		}
	}
	return nil
}

func isDiskSize(s string) error {
	if _, ok := parseSize(s); !ok {
		return fmt.Errorf("value does not look like a valid disk size: %s", s)
	}
	return nil
}

// isIPv4Config and isIPv6Config check the addresses in ipconfig.
func isIPv4Config(s string) error {
	if p, err := netip.ParsePrefix(s); s == "dhcp" || (err == nil && p.Addr().Is4()) {
		return nil
	}
	return errors.New("value does not look like a valid ipv4 network configuration")
}

func isIPv6Config(s string) error {
	if p, err := netip.ParsePrefix(s); s == "dhcp" || s == "auto" || (err == nil && p.Addr().Is6()) {
		return nil
	}
	return errors.New("value does not look like a valid ipv6 network configuration")
}

func isIPv4(s string) error {
	if a, err := netip.ParseAddr(s); err != nil || !a.Is4() {
		return errors.New("value does not look like a valid IPv4 address")
	}
	return nil
}

func isIPv6(s string) error {
	if a, err := netip.ParseAddr(s); err != nil || !a.Is6() {
		return errors.New("value does not look like a valid IPv6 address")
	}
	return nil
}

// splitList splits a list at commas, semicolons and white space, as Proxmox VE does.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' || r == ' ' || r == '\t' || r == '\n' || r == 0 })
}

// parseSize parses a size such as 32G, and returns it in bytes.
func parseSize(s string) (int64, bool) {
	match := sizeForm.FindStringSubmatch(s)
	if match == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		return 0, false
	}
	shift := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2]]
	return int64(n * float64(int64(1)<<shift)), true
}

// formatSize formats a size with the largest unit that divides it.
func formatSize(bytes int64) string {
	for _, unit := range []struct {
		name  string
		shift int
	}{{"T", 40}, {"G", 30}, {"M", 20}, {"K", 10}} {
		if size := int64(1) << unit.shift; bytes >= size && bytes%size == 0 {
			return strconv.FormatInt(bytes>>unit.shift, 10) + unit.name
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// encodeText escapes characters that the fields of a UPID cannot have.
func encodeText(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte("%:+/#?", c) >= 0 || c <= ' ' || c > '~' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

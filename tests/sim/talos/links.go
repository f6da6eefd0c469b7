package talos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/network"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config"
	configs "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/proto"
)

// selectsDevice reports whether an interface of the classic configuration selects a link, by its name
// or its properties.
func selectsDevice(name string, selector configs.NetworkDeviceSelector, link Link) bool {
	if selector == nil {
		return name == link.Name
	}
	if selector.PCIID() != "" || selector.KernelDriver() != "" || selector.Bus() != "" {
		return false // the simulated hardware has no bus
	}
	matched := selector.Physical() != nil && *selector.Physical()
	for _, pattern := range []string{selector.HardwareAddress(), selector.PermanentAddress()} {
		if pattern == "" {
			continue
		}
		if !glob(strings.ToLower(pattern), strings.ToLower(link.MAC)) {
			return false
		}
		matched = true
	}
	return matched
}

// glob matches a pattern in which * stands for any text.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	rest, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, last)
}

// aliases returns all names of a link: its own, and those of the configuration's selectors.
func aliases(m Machine, at int, cfg config.Provider) []string {
	names := []string{m.Links[at].Name}
	documents := cfg.NetworkLinkAliasConfigs()
	if len(documents) == 0 {
		return names
	}
	slices.SortFunc(documents, func(a, b configs.NetworkLinkAliasConfig) int { return strings.Compare(a.Name(), b.Name()) })
	order := make([]int, len(m.Links))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(m.Links[a].MAC, m.Links[b].MAC) })
	given := map[int]bool{}
	for _, c := range documents {
		var matched []int
		for _, i := range order {
			if !given[i] && selectsLink(c, m, i) {
				matched = append(matched, i)
			}
		}
		if !c.IsPatternAlias() && len(matched) != 1 {
			continue // a fixed name must select exactly one link
		}
		for n, i := range matched {
			given[i] = true
			if i == at {
				name := c.Name()
				if c.IsPatternAlias() {
					name = fmt.Sprintf(name, n)
				}
				names = append(names, name)
			}
		}
	}
	return names
}

func selectsLink(c configs.NetworkLinkAliasConfig, m Machine, at int) bool {
	var spec networkpb.LinkStatusSpec
	if err := proto.ResourceSpecToProto(linkStatus(m, at), &spec); err != nil {
		return false
	}
	ok, err := c.LinkSelector().EvalBool(celenv.LinkLocator(), map[string]any{"link": &spec})
	return err == nil && ok
}

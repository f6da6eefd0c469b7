package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// versionReport is what people are told about the versions of a cluster.
type versionReport struct {
	current         bool
	reason, message string
}

// reportUpgrade says how far an upgrade is.
func (c *cluster) reportUpgrade(nodes []observed) error {
	s := c.Status.Upgrade
	what := map[v1alpha1.UpgradeKind]string{
		v1alpha1.UpgradeTalos:        "Talos to " + c.plan.talos,
		v1alpha1.UpgradeControlPlane: "the control plane to Kubernetes " + c.plan.kubernetes,
		v1alpha1.UpgradeKubelet:      "the kubelets to Kubernetes " + c.plan.kubernetes,
	}[s.Kind]
	skew := skewOf(nodes)
	if u := failedNode(s); u != nil {
		message := fmt.Sprintf("the upgrade of %s has stopped: node %s: %s; change the versions, or set spec.upgrade.paused to true and back to try again", what, u.Name, u.Message)
		c.versions = versionReport{false, "UpgradeFailed", skew}
		return fault{"UpgradeFailed", message}
	}
	var names []string
	for _, u := range s.Nodes {
		name := u.Name
		if u.Message != "" {
			name += " (" + u.Message + ")"
		}
		names = append(names, name)
	}
	switch {
	case len(names) > 0:
		c.versions = versionReport{false, "Upgrading", skew}
		return waits{reason: "Upgrading", message: fmt.Sprintf("upgrades %s, %s nodes are done, now %s", what, s.Progress, strings.Join(names, ", ")), silent: true}
	case c.upgradePaused():
		c.versions = versionReport{false, "UpgradePaused", skew + "; spec.upgrade.paused is true"}
		return nil
	default:
		c.versions = versionReport{false, "Upgrading", skew}
		message := fmt.Sprintf("upgrades %s, %s nodes are done", what, s.Progress)
		if c.gate != "" {
			message += ", and waits: " + c.gate
		}
		return waits{reason: "Upgrading", message: message, silent: true}
	}
}

// skewOf lists which versions there are, and how many nodes run each.
func skewOf(nodes []observed) string {
	counts := map[string]int{}
	for _, o := range nodes {
		if o.node.name != "" {
			counts[fmt.Sprintf("Kubernetes %s on Talos %s", o.runs(v1alpha1.UpgradeKubelet), o.node.talos)]++
		}
	}
	var parts []string
	for what, n := range counts {
		parts = append(parts, count(n, "node")+" with "+what)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

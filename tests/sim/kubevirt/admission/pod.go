package admission

import (
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

// Limits of a pod's DNS settings.
const (
	maxNameservers = 3
	maxSearches    = 6
	maxSearchChars = 256
)

func probes(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	all := []struct {
		at    *field.Path
		probe *virtv1.Probe
	}{{at.Child("readinessProbe"), spec.ReadinessProbe}, {at.Child("livenessProbe"), spec.LivenessProbe}}
	for _, p := range all {
		c = append(c, probe(p.at, p.probe)...)
	}
	if slices.ContainsFunc(spec.Networks, func(n virtv1.Network) bool { return n.Pod != nil }) {
		return c
	}
	for _, p := range all {
		if p.probe == nil {
			continue
		}
		if p.probe.HTTPGet != nil {
			c.invalid(p.at.Child("httpGet"), "%s is only allowed if the Pod Network is attached", p.at.Child("httpGet"))
		}
		if p.probe.TCPSocket != nil {
			c.invalid(p.at.Child("tcpSocket"), "%s is only allowed if the Pod Network is attached", p.at.Child("tcpSocket"))
		}
	}
	return c
}

func probe(at *field.Path, p *virtv1.Probe) Causes {
	var c Causes
	if p == nil {
		return nil
	}
	handlers := 0
	for _, set := range []bool{p.HTTPGet != nil, p.TCPSocket != nil, p.Exec != nil, p.GuestAgentPing != nil} {
		if set {
			handlers++
		}
	}
	switch {
	case handlers > 1:
		c.invalid(at, "%s must have exactly one probe type set", at)
	case handlers < 1:
		c.required(at, "either %s, %s or %s must be set if a %s is specified",
			at.Child("tcpSocket"), at.Child("exec"), at.Child("httpGet"), at)
	}
	return c
}

func credentials(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	noCloud := slices.ContainsFunc(spec.Volumes, func(v virtv1.Volume) bool { return v.CloudInitNoCloud != nil })
	configDrive := slices.ContainsFunc(spec.Volumes, func(v virtv1.Volume) bool { return v.CloudInitConfigDrive != nil })
	for i, cred := range spec.AccessCredentials {
		here := at.Child("accessCredentials").Index(i)
		kinds := 0
		if key := cred.SSHPublicKey; key != nil {
			kinds++
			c = append(c, sshKey(here, key, noCloud, configDrive)...)
		}
		if password := cred.UserPassword; password != nil {
			kinds++
			if password.Source.Secret == nil {
				c.invalid(here.Child("userPassword", "source"), "%s must have exactly one source set", here)
			}
			if password.PropagationMethod.QemuGuestAgent == nil {
				c.invalid(here.Child("userPassword", "propagationMethod"), "%s must have exactly one propagationMethod set", here)
			}
		}
		if kinds != 1 {
			c.invalid(here, "%s must have exactly one access credential type set", here)
		}
	}
	return c
}

func sshKey(here *field.Path, key *virtv1.SSHPublicKeyAccessCredential, noCloud, configDrive bool) Causes {
	var c Causes
	at := here.Child("sshPublicKey")
	by := key.PropagationMethod
	methods := 0
	if by.NoCloud != nil {
		methods++
		if !noCloud {
			c.invalid(at.Child("propagationMethod"), "%s requires a noCloud volume to exist when the noCloud propagationMethod is in use.", here)
		}
	}
	if by.ConfigDrive != nil {
		methods++
		if !configDrive {
			c.invalid(at.Child("propagationMethod"), "%s requires a configDrive volume to exist when the configDrive propagationMethod is in use.", here)
		}
	}
	if by.QemuGuestAgent != nil {
		methods++
		if len(by.QemuGuestAgent.Users) == 0 {
			c.invalid(at.Child("propagationMethod", "qemuGuestAgent", "users"), "%s requires at least one user to be present in the users list", here)
		}
	}
	if key.Source.Secret == nil {
		c.invalid(at.Child("source"), "%s must have exactly one source set", here)
	}
	if methods != 1 {
		c.invalid(at.Child("propagationMethod"), "%s must have exactly one propagationMethod set", here)
	}
	return c
}

func dns(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	atPolicy, atConfig := at.Child("dnsPolicy"), at.Child("dnsConfig")
	policies := []corev1.DNSPolicy{corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone, ""}
	if !slices.Contains(policies, spec.DNSPolicy) {
		c.unsupported(atPolicy, "DNSPolicy: %s is not supported, valid values: %s", spec.DNSPolicy, policies)
	}
	config := spec.DNSConfig
	if spec.DNSPolicy == corev1.DNSNone && config == nil {
		c.required(atConfig, "must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone)
		return c
	}
	if config == nil {
		return c
	}
	nameservers, searches := field.NewPath("nameservers"), field.NewPath("searchDomains")
	if spec.DNSPolicy == corev1.DNSNone && len(config.Nameservers) == 0 {
		c.required(nameservers, "must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone)
		return c
	}
	if len(config.Nameservers) > maxNameservers {
		c.invalid(nameservers, "must not have more than %v nameservers: %s", maxNameservers, config.Nameservers)
	}
	for _, server := range config.Nameservers {
		if net.ParseIP(server) == nil {
			c.invalid(nameservers, "must be valid IP address: %s", server)
		}
	}
	if len(config.Searches) > maxSearches {
		c.invalid(searches, "must not have more than %v search paths", maxSearches)
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchChars {
		c.invalid(searches, "must not have more than %v characters (including spaces) in the search list", maxSearchChars)
	}
	for _, search := range config.Searches {
		for _, wrong := range validation.IsDNS1123Subdomain(search) {
			c.invalid(searches, "%v", wrong)
		}
	}
	return c
}

func eviction(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	known := []virtv1.EvictionStrategy{
		virtv1.EvictionStrategyLiveMigrate, virtv1.EvictionStrategyLiveMigrateIfPossible,
		virtv1.EvictionStrategyNone, virtv1.EvictionStrategyExternal,
	}
	if s := spec.EvictionStrategy; s != nil && !slices.Contains(known, *s) {
		at = at.Child("evictionStrategy")
		c.invalid(at, "%s is set with an unrecognized option: %s", at, *s)
	}
	return c
}

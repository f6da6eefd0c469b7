// Package addons decides about the add-ons of a cluster: where their manifests may come from, when
// they are read, and what they contain. It has no client, clock, context or log.
package addons

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// HostsVariable is the environment variable of bootstrap-talos with the hosts that manifests may be read
// from, in the form of ALLOWED_ENDPOINTS. Without it manifests are only in ConfigMaps.
const HostsVariable = "ALLOWED_ADDON_HOSTS"

// Reasons of add-ons that are not applied.
const (
	// ReasonNotFound is the reason of an add-on whose ConfigMap or URL does not exist.
	ReasonNotFound = "AddonNotFound"
	// ReasonNotAllowed is the reason of an add-on whose URL is at a host that is not allowed.
	ReasonNotAllowed = "AddonNotAllowed"
	// ReasonInvalid is the reason of an add-on whose manifests cannot be read.
	ReasonInvalid = "AddonInvalid"
	// ReasonUnavailable is the reason of an add-on whose host does not answer as expected.
	ReasonUnavailable = "AddonUnavailable"
	// ReasonRefused is the reason of an add-on that the workload API refuses.
	ReasonRefused = "AddonRefused"
	// ReasonWaiting is the reason of an add-on that waits for the workload API.
	ReasonWaiting = "WaitingForAddons"
)

// HostRules say from which hosts manifests may be read. CheckURL returns an error for a URL of another host.
// Rules that cannot be read refuse every host, with an error that wraps the reason.
type HostRules interface {
	CheckURL(address string) error
}

// NoHosts are the rules without a list. They allow no host.
type NoHosts struct{}

// CheckURL returns an error for every URL.
func (NoHosts) CheckURL(string) error { return errNoHosts }

var errNoHosts = errors.New("no host is allowed")

// Source names where the manifests of an add-on are.
func Source(a v1alpha1.ClusterAddon) string {
	if a.URL != "" {
		return a.URL
	}
	return "ConfigMap " + string(a.ConfigMap)
}

// CheckHost returns a usererror.Error for an add-on whose URL is at a host that is not allowed.
func CheckHost(a v1alpha1.ClusterAddon, allowed HostRules) error {
	if a.URL == "" {
		return nil
	}
	err := allowed.CheckURL(a.URL)
	switch {
	case err == nil:
		return nil
	case errors.Unwrap(err) != nil:
		return Problem(a.Name, ReasonNotAllowed, err.Error())
	}
	host := a.URL
	if u, err := url.Parse(a.URL); err == nil {
		host = u.Hostname()
	}
	return Problem(a.Name, ReasonNotAllowed, fmt.Sprintf(
		"manifests are not read from %s: put them into a ConfigMap and name it in configMap, or have the host added to %s of bootstrap-talos", host, HostsVariable))
}

// CheckNames returns a usererror.Error for a ConfigMap that does not exist.
func CheckNames(a v1alpha1.ClusterAddon, exists bool) error {
	if a.ConfigMap == "" || exists {
		return nil
	}
	return Problem(a.Name, ReasonNotFound, fmt.Sprintf(
		"ConfigMap %s does not exist: create it in the namespace of the cluster, or remove the add-on from spec.addons. The stack checks again every minute", a.ConfigMap))
}

// Problem returns the usererror.Error of an add-on, whose message names the add-on.
func Problem(name, reason, message string) usererror.Error {
	return usererror.Error{Reason: reason, Message: "add-on " + name + ": " + message}
}

// NeedsRead decides whether the manifests of an add-on are read in a delivery. last is what the status has of the
// add-on, and full whether the delivery reconciles a cluster that is up to date too:
//
//	not applied, or refused the last time     yes
//	applied from another ConfigMap or URL     yes
//	requested by vitistack.io/reconcile       yes
//	a URL                                     no: another version has another URL
//	a ConfigMap, in a full reconcile          yes: it may have changed
//	a ConfigMap otherwise                     no
func NeedsRead(a v1alpha1.ClusterAddon, last v1alpha1.AddonStatus, full, requested bool) bool {
	switch {
	case last.Digest == "" || last.Message != "" || last.Source != Source(a) || requested:
		return true
	case a.URL != "":
		return false
	default:
		return full
	}
}

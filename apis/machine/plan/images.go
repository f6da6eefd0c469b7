package plan

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Environment variables of create-vm that say where images may come from.
const (
	// ImageHostsVariable has hosts, in the form of ALLOWED_ENDPOINTS, whose hosts are allowed too.
	ImageHostsVariable = "ALLOWED_IMAGE_HOSTS"
	// ImageFactoryVariable has the URL of the image factory of Talos, which is allowed as well.
	ImageFactoryVariable = "IMAGE_FACTORY"
)

// defaultImageFactory is the host of the images of Talos nodes.
const defaultImageFactory = "factory.talos.dev"

// ReasonImageNotAllowed is the reason of a Machine whose image is at a host that is not allowed.
const ReasonImageNotAllowed = "ImageNotAllowed"

// HostRules say from which hosts a hypervisor may fetch something. CheckURL returns an error for a URL of another
// host. Rules that cannot be read refuse every host, with an error that wraps the reason.
type HostRules interface {
	CheckURL(address string) error
}

// ImageHosts returns the list of hosts from which images may come, in the form of ALLOWED_ENDPOINTS: the image
// factory, and those of the variables. There always is one, because a hypervisor resolves a name itself, and the
// metadata of its cloud is within its reach.
func ImageHosts(factoryURL, imageHosts, allowedEndpoints string) string {
	factory := defaultImageFactory
	if u, err := url.Parse(factoryURL); err == nil && u.Hostname() != "" {
		factory = u.Hostname()
	}
	return strings.Join([]string{factory, imageHosts, allowedEndpoints}, ",")
}

// Image is an image that a hypervisor fetches.
type Image struct {
	// Field is the field of spec.os, and URL its value.
	Field, URL string
}

// Images returns the images of a machine that are URLs. Others are on the hypervisor already.
func Images(os *v1alpha1.MachineOS) (all []Image) {
	if os == nil {
		return nil
	}
	for _, i := range []Image{{"imageID", os.ImageID}, {"isoUri", os.ISOURI}} {
		if strings.Contains(i.URL, "://") {
			all = append(all, i)
		}
	}
	return all
}

// CheckHost returns a usererror.Error for an image from a host that is not allowed.
func (i Image) CheckHost(allowed HostRules) error {
	err := allowed.CheckURL(i.URL)
	switch {
	case err == nil:
		return nil
	case errors.Unwrap(err) != nil:
		return usererror.Error{Reason: ReasonImageNotAllowed, Message: "spec.os." + i.Field + ": " + err.Error()}
	}
	return usererror.Error{Reason: ReasonImageNotAllowed, Message: fmt.Sprintf(
		"spec.os.%s: images are not fetched from %s: name an image at an allowed host, or have the host added to %s of create-vm",
		i.Field, i.Host(), ImageHostsVariable)}
}

// Host returns the host of the URL.
func (i Image) Host() string {
	u, err := url.Parse(i.URL)
	if err != nil {
		return i.URL
	}
	return u.Hostname()
}

// CheckImageHosts returns the first error of the images of a machine.
func CheckImageHosts(os *v1alpha1.MachineOS, allowed HostRules) error {
	for _, i := range Images(os) {
		if err := i.CheckHost(allowed); err != nil {
			return err
		}
	}
	return nil
}

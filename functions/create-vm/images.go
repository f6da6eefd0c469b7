package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// imageHosts is the environment variable with the hosts that hypervisors may fetch images
// from, in the form of ALLOWED_ENDPOINTS, whose hosts are allowed too.
const imageHosts = "ALLOWED_IMAGE_HOSTS"

// defaultImageFactory is the host of the images of Talos nodes.
const defaultImageFactory = "factory.talos.dev"

// allowedImages returns the hosts from which images may come. There always is a list, because
// a hypervisor resolves a name itself, and the metadata of its cloud is within its reach.
func allowedImages(getenv func(string) string) outbound.Rules {
	factory := defaultImageFactory
	if u, err := url.Parse(getenv("IMAGE_FACTORY")); err == nil && u.Hostname() != "" {
		factory = u.Hostname()
	}
	return outbound.Parse(strings.Join([]string{factory, getenv(imageHosts), getenv(outbound.Variable)}, ","))
}

// checkImageHost returns a UserError for an image from a host that is not allowed.
func checkImageHost(os *v1alpha1.MachineOS, allowed outbound.Rules) error {
	if os == nil {
		return nil
	}
	for field, address := range map[string]string{"imageID": os.ImageID, "isoUri": os.ISOURI} {
		if !strings.Contains(address, "://") {
			continue
		}
		err := allowed.CheckURL(address)
		var denied *outbound.Denied
		switch {
		case err == nil:
		case errors.As(err, &denied) && errors.Unwrap(denied) == nil:
			return reconcile.UserError{Reason: "ImageNotAllowed", Message: fmt.Sprintf("spec.os.%s: images are not fetched from %s: name an image at an allowed host, or have the host added to %s of create-vm", field, denied.Host, imageHosts)}
		default:
			return reconcile.UserError{Reason: "ImageNotAllowed", Message: "spec.os." + field + ": " + err.Error()}
		}
	}
	return nil
}

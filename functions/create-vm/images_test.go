package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// TestImagesFromForbiddenPlaces has a tenant make the hypervisor download the cloud's credentials, to
// read them from the disk.
func TestImagesFromForbiddenPlaces(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		env          map[string]string
		address      string
		says         string // empty if it is downloaded
	}{
		{"Metadata", "the address of the metadata service", nil, "http://169.254.169.254/latest/user-data.raw", "ALLOWED_IMAGE_HOSTS"},
		{"Number", "the address as a number", nil, "http://2852039166/a.qcow2", "ALLOWED_IMAGE_HOSTS"},
		{"IPv6", "the address of AWS over IPv6", nil, "http://[fd00:ec2::254]/a.iso", "ALLOWED_IMAGE_HOSTS"},
		{"Mapped", "an IPv4-mapped IPv6 address", nil, "https://[::ffff:169.254.169.254]/a.iso", "ALLOWED_IMAGE_HOSTS"},
		{"Name", "a host name that resolves to the address", nil, "http://169.254.169.254.nip.io/a.raw", "169.254.169.254.nip.io"},
		{"Google", "the host name of Google's metadata service", nil, "http://metadata.google.internal/computeMetadata/v1/a.raw", "metadata.google.internal"},
		{"Unknown", "any host name may resolve to it later", nil, "https://images.example.com/a.qcow2", "images.example.com"},
		{"Inside", "a service of the cluster", nil, "http://kubernetes.default.svc/a.raw", "kubernetes.default.svc"},
		{"Lookalike", "a name with the suffix of an allowed one", nil, "https://evilfactory.talos.dev/a.iso", "evilfactory.talos.dev"},
		{"User", "an allowed name as the user of the URL", nil, "https://factory.talos.dev@images.example.com/a.iso", "images.example.com"},
		{"Broken", "an invalid list allows no host, and the error says why", map[string]string{"ALLOWED_IMAGE_HOSTS": "https://images.example.com"}, "https://factory.talos.dev/a.iso", "is no host name"},
		{"Factory", "nodes boot from it", nil, "https://factory.talos.dev/image/x/v1.13.9/nocloud-amd64.raw.xz", ""},
		{"OwnFactory", "the image factory of the installation", map[string]string{"IMAGE_FACTORY": "https://factory.example.com:8443"}, "https://factory.example.com:8443/a.iso", ""},
		{"Listed", "the platform team allows it", map[string]string{"ALLOWED_IMAGE_HOSTS": "images.example.com,*.ubuntu.com"}, "https://cloud-images.ubuntu.com/a.img", ""},
		{"Endpoint", "an allowed endpoint may serve images", map[string]string{"ALLOWED_ENDPOINTS": "10.0.0.0/8"}, "http://10.1.2.3/a.raw", ""},
		{"Template", "a template of the hypervisor", nil, "9000", ""},
		{"Volume", "a volume of the hypervisor", nil, "local:iso/talos.iso", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			allowed := allowedImages(func(name string) string { return tc.env[name] })
			for _, os := range []v1alpha1.MachineOS{{ImageID: tc.address}, {ISOURI: tc.address}} {
				err := plan.CheckImageHosts(&os, allowed)
				var f reconcile.UserError
				if tc.says == "" && err != nil || tc.says != "" && (!errors.As(err, &f) || f.Reason != "ImageNotAllowed" || !strings.Contains(f.Message, tc.says)) {
					t.Errorf("%s: %+v: got %v, want %q", tc.reason, os, err, tc.says)
				}
			}
		})
	}
	if err := plan.CheckImageHosts(nil, outbound.Rules{}); err != nil {
		t.Error(err)
	}
}

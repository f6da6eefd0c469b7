package proxmox

import (
	"context"
	"errors"
	"net/http"
	"slices"
)

// rootCertificate is the file with the authority of a cluster of Proxmox VE.
const rootCertificate = "pve-root-ca.pem"

// Endpoint implements hypervisor.Identifier.
func (x *Hypervisor) Endpoint() string { return x.provider.Spec.Endpoint.URL }

// Identity implements hypervisor.Identifier. The authority is made when the first host is installed, is one for all hosts of
// the cluster, and every user may read it (pve-manager, PVE/API2/Certificates.pm, info).
func (x *Hypervisor) Identity(ctx context.Context) (string, error) {
	var certificates []struct {
		Filename    string `json:"filename"`
		Fingerprint string `json:"fingerprint"`
	}
	err := x.client.Get(ctx, "/nodes/localhost/certificates/info", &certificates)
	if e := (*apiError)(nil); errors.As(err, &e) && slices.Contains([]int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusNotImplemented}, e.status) {
		return "", nil
	}
	for _, c := range certificates {
		if c.Filename == rootCertificate {
			return c.Fingerprint, nil
		}
	}
	return "", x.toUserError(err)
}

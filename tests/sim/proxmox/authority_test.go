package proxmox_test

import (
	"path/filepath"
	"testing"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestCertificates reads the authority of a cluster, which every user may do, and which a restart does not change.
func TestCertificates(t *testing.T) {
	t.Parallel()
	kept := proxmox.Options{State: filepath.Join(t.TempDir(), "state"), Users: []proxmox.User{{Name: "viti@pve"}}}
	r := setUp(t, kept)
	first := r.authority("localhost")
	if first == "" || r.authority("pve2") != first {
		t.Errorf("the nodes of one cluster have the authorities %q and %q", first, r.authority("pve2"))
	}
	r.server.SetOffline("pve1", true)
	if got := r.authority("localhost"); got != first {
		t.Errorf("another node that answers has the authority %q, want %q", got, first)
	}
	if err := r.server.Close(); err != nil {
		t.Fatal(err)
	}
	if got := setUp(t, kept).authority("localhost"); got != first {
		t.Errorf("after a restart the authority is %q, want %q", got, first)
	}
	if got := setUp(t, proxmox.Options{}).authority("localhost"); got == first {
		t.Error("two clusters have one authority")
	}
	if err := r.server.RenewAuthority(); err != nil {
		t.Fatal(err)
	}
	if got := r.authority("localhost"); got == first {
		t.Error("the authority is not renewed")
	}
}

// authority returns the fingerprint of the authority that a node lists.
func (r *env) authority(node string) string {
	r.Helper()
	var list []struct{ Filename, Fingerprint string }
	r.get("/nodes/"+node+"/certificates/info", &list)
	for _, c := range list {
		if c.Filename == "pve-root-ca.pem" {
			return c.Fingerprint
		}
	}
	return ""
}

package proxmox

import (
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestImageURL(t *testing.T) {
	t.Parallel()
	talos := "https://factory.talos.dev/image/" + strings.Repeat("0a", 32) + "/v1.13.9/nocloud-amd64"
	for id, want := range map[string]string{
		"9000": "", "debian-13": "", "https://x/debian.qcow2": "https://x/debian.qcow2", talos + ".raw.xz": talos + ".qcow2", talos + ".raw.zst": talos + ".qcow2",
	} {
		m := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{OS: &v1alpha1.MachineOS{ImageID: id}}}
		if got := imageURL(m); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

// TestSnippetsOfOthers names a snippet of another tenant, or none.
func TestSnippetsOfOthers(t *testing.T) {
	t.Parallel()
	x := settings{options: v1alpha1.ProxmoxOptions{AllowedSnippets: []string{"local:snippets/base.yaml"}}}
	for text, refused := range map[string]bool{
		"local:snippets/base.yaml\n":        false,
		"#cloud-config\n{}\n":               false,
		"":                                  false,
		"local:snippets/keys.yaml":          true,
		"other:snippets/base.yaml":          true,
		"local:snippets/../../etc/shadow":   true,
		"local:snippets/base.yaml/../x.yml": true,
	} {
		err := x.checkSnippet(text)
		if f, _ := reconcile.AsUserError(err); (f.Reason == "SnippetNotAllowed") != refused || (err != nil) != refused {
			t.Errorf("%q: %v, want a refusal: %t", text, err, refused)
		}
	}
	if (settings{}).checkSnippet("local:snippets/base.yaml") == nil {
		t.Error("a provider that lists no snippets allows one")
	}
}

// TestInstallersOfOthers names volumes on a storage that tenants may not read.
func TestInstallersOfOthers(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]string{
		"local-lvm:vm-100-disk-0": "the disk of another machine",
		"/dev/sda":                "a disk of the host",
		"local:iso/vitistack-1b4e28ba-2fa1-11d2-883f-0016d3cca427.iso": "the cloud-init CD of another machine, with keys",
		"local:iso/../../../etc/shadow":                                "a path",
		"local:iso/a.iso,file=local-lvm:vm-100-disk-0":                 "an additional option",
		"local:iso/a.iso\n":                                            "a line more",
		"local:backup/vzdump-qemu-100.vma.iso":                         "a backup",
		"none":                                                         "no volume",
	} {
		if err := checkSupported(&v1alpha1.Machine{Spec: v1alpha1.MachineSpec{OS: &v1alpha1.MachineOS{ISOURI: text}}}); err == nil {
			t.Errorf("%s is accepted: %s", text, reason)
		}
	}
	if !isInstaller("local:iso/talos-1.13.9_amd64.iso") {
		t.Error("a valid installer is rejected")
	}
}

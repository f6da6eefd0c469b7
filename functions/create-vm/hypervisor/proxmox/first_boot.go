package proxmox

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	pve "github.com/luthermonson/go-proxmox"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// firstBootConfig is how a guest gets its first configuration: by the cloud-init drive of Proxmox VE
// with options, or by a CD that the stack uploads.
type firstBootConfig struct {
	options map[string]string
	// userData and networkData are the files of the CD. Both are empty without one.
	userData, networkData string
}

// iso reports whether the configuration needs a CD.
func (f firstBootConfig) iso() bool { return f.userData != "" || f.networkData != "" }

// snippet matches user data that names the volume of a snippet on a storage.
var snippet = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*:snippets/[^\s,]+$`)

// decideFirstBoot decides how a guest gets its first configuration. The drive of Proxmox VE can carry
// one user with keys, addresses, name servers and a snippet. Everything else needs a CD, because the
// API accepts no other files:
//
//	user data                        network data given   means
//	none                             no                   drive
//	the volume of a snippet          no                   drive with cicustom
//	one user with nothing but keys   no                   drive with ciuser and sshkeys
//	other                            no                   CD with user and network data
//	any                              yes                  CD with user and network data
func decideFirstBoot(m *v1alpha1.Machine, want hypervisor.Desired) firstBootConfig {
	given := m.Spec.CloudInit != nil && m.Spec.CloudInit.NetworkData != ""
	// Proxmox VE would upgrade all packages at the first boot, and write a config drive
	// instead of NoCloud for the type of Windows guests.
	o := map[string]string{"ciupgrade": "0", "citype": "nocloud"}
	userData := strings.TrimSpace(want.UserData)
	simple := userData == ""
	if name, keys, ok := simpleUser(userData); ok {
		simple = true
		o["ciuser"] = name
		if len(keys) > 0 {
			o["sshkeys"] = pve.EncodeSSHKeys(keys...)
		}
	}
	if snippet.MatchString(userData) {
		simple = true
		o["cicustom"] = "user=" + userData
	}
	if given || !simple {
		f := firstBootConfig{userData: want.UserData, networkData: want.NetworkData}
		if f.userData == "" {
			f.userData = hypervisor.EmptyUserData
		}
		return f
	}
	var servers []string
	for i, n := range want.NICs {
		o["ipconfig"+strconv.Itoa(i)] = ipConfigOption(n)
		for _, s := range n.DNS {
			if !slices.Contains(servers, s) {
				servers = append(servers, s)
			}
		}
	}
	if len(servers) > 0 {
		o["nameserver"] = strings.Join(servers, " ")
	}
	return firstBootConfig{options: o}
}

// simpleUser returns the name and the keys of user data that configures one administrator and nothing
// else.
func simpleUser(userData string) (name string, keys []string, ok bool) {
	if !strings.HasPrefix(userData, "#cloud-config") {
		return "", nil, false
	}
	var doc struct {
		Users []struct {
			Name string   `json:"name"`
			Sudo string   `json:"sudo"`
			Keys []string `json:"ssh_authorized_keys"`
		} `json:"users"`
	}
	if yaml.UnmarshalStrict([]byte(userData), &doc) != nil || len(doc.Users) != 1 {
		return "", nil, false
	}
	u := doc.Users[0]
	return u.Name, u.Keys, u.Name != "" && u.Sudo == "ALL=(ALL) NOPASSWD:ALL"
}

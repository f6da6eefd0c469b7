package proxmox

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ticketLife is the lifetime of a ticket.
const ticketLife = 2 * time.Hour

// User is a user account.
type User struct {
	// Name has a realm, for example viti@pve.
	Name, Password string
	Grants         []Grant
}

// Token is an API token. It has the rights of its user. If Separate is set, it has the rights that
// both have.
type Token struct {
	// ID has the form viti@pve!stack.
	ID, Secret string
	Separate   bool
	Grants     []Grant
}

// Grant grants privileges on a path and everything below it. A grant on a deeper path replaces it
// there.
type Grant struct {
	Path       string
	Privileges []string
	// OnlyHere excludes what is below the path.
	OnlyHere bool
}

// Administrator has all privileges that the simulated methods check.
var Administrator = []string{
	"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit", "Pool.Allocate", "Pool.Audit",
	"SDN.Use", "SDN.Audit", "Sys.AccessNetwork", "Sys.Audit", "Sys.Modify", "VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU",
	"VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
	"VM.GuestAgent.Audit", "VM.Monitor", "VM.PowerMgmt",
}

// identity is the caller of a method.
type identity struct {
	user string
	// token is the part of a token's ID after the user.
	token string
}

// String returns the name in tasks.
func (i identity) String() string {
	if i.token == "" {
		return i.user
	}
	return i.user + "!" + i.token
}

type ticket struct {
	user, csrf string
	expires    time.Time
}

// authenticate returns the caller of a request.
func (s *Server) authenticate(r *http.Request) (identity, error) {
	if value, ok := strings.CutPrefix(r.Header.Get("Authorization"), "PVEAPIToken="); ok {
		return s.tokenOf(value)
	}
	cookie, err := r.Cookie("PVEAuthCookie")
	if err != nil {
		return identity{}, unauthorized("No ticket")
	}
	value, err := url.QueryUnescape(cookie.Value)
	t, ok := s.tickets[value]
	if err != nil || !ok || time.Now().After(t.expires) {
		return identity{}, unauthorized("permission denied - invalid PVE ticket")
	}
	if r.Method != http.MethodGet && !same(r.Header.Get("CSRFPreventionToken"), t.csrf) {
		return identity{}, unauthorized("Permission denied - invalid csrf token")
	}
	return identity{user: t.user}, nil
}

func (s *Server) tokenOf(value string) (identity, error) {
	id, secret, _ := strings.Cut(value, "=")
	user, name, ok := strings.Cut(id, "!")
	if !ok {
		return identity{}, unauthorized("no tokenid specified")
	}
	if _, exists := s.users[user]; !exists {
		return identity{}, unauthorized("no such user ('" + user + "')")
	}
	t, exists := s.tokens[id]
	if !exists {
		return identity{}, unauthorized("no such token '" + name + "' for user '" + user + "'")
	}
	if !same(secret, t.Secret) {
		return identity{}, unauthorized("invalid token value!")
	}
	return identity{user: user, token: name}, nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// createTicket logs a user in with a password, or with an earlier ticket.
func createTicket(c *call) (any, error) {
	name := c.params["username"]
	if realm := c.params["realm"]; realm != "" && !strings.Contains(name, "@") {
		name += "@" + realm
	}
	user, ok := c.server.users[name]
	earlier, again := c.server.tickets[c.params["password"]]
	again = again && earlier.user == name && time.Now().Before(earlier.expires)
	if !ok || (!again && (user.Password == "" || !same(user.Password, c.params["password"]))) {
		return nil, unauthorized("authentication failure")
	}
	t := ticket{user: name, csrf: rand.Text(), expires: time.Now().Add(ticketLife)}
	value := "PVE:" + name + ":" + rand.Text()
	c.server.tickets[value] = t
	return map[string]any{"username": name, "ticket": value, "CSRFPreventionToken": t.csrf, "clustername": "simulated"}, nil
}

// privileges returns the privileges of an identity on a path.
func (s *Server) privileges(i identity, path string) []string {
	own := effective(s.users[i.user].Grants, path)
	if i.user == "root@pam" {
		own = Administrator
	}
	if i.token == "" {
		return own
	}
	t := s.tokens[i.String()]
	if !t.Separate {
		return own
	}
	var both []string
	for _, p := range effective(t.Grants, path) {
		if slices.Contains(own, p) {
			both = append(both, p)
		}
	}
	return both
}

// effective returns the privileges of the deepest grant that covers a path.
func effective(grants []Grant, path string) []string {
	var found []string
	deepest := -1
	for _, g := range grants {
		below := g.Path == "/" || strings.HasPrefix(path+"/", strings.TrimSuffix(g.Path, "/")+"/")
		if !below || (g.OnlyHere && g.Path != path) || len(g.Path) < deepest {
			continue
		}
		if len(g.Path) > deepest {
			found, deepest = nil, len(g.Path)
		}
		found = append(found, g.Privileges...)
	}
	return found
}

// may reports whether a caller has all given privileges on a path. The privileges on a machine's pool
// apply to the machine as well.
func (c *call) may(path string, privileges ...string) bool {
	has := c.server.privileges(c.user, path)
	if id, ok := strings.CutPrefix(path, "/vms/"); ok {
		n, _ := strconv.Atoi(id)
		if m := c.server.machines[n]; m != nil && m.Pool != "" {
			has = append(slices.Clone(has), c.server.privileges(c.user, "/pool/"+m.Pool)...)
		}
	}
	for _, p := range privileges {
		if !slices.Contains(has, p) {
			return false
		}
	}
	return true
}

// getPermissions lists the privileges of a user. Those of another user require Sys.Audit on /access,
// which the simulated users lack.
func getPermissions(c *call) (any, error) {
	if user := c.params["userid"]; user != "" && user != c.user.String() {
		if err := c.demand("/access", "Sys.Audit"); err != nil {
			return nil, err
		}
	}
	paths := []string{"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"}
	if path := c.params["path"]; path != "" {
		paths = []string{path}
	}
	found := map[string]map[string]int{}
	for _, path := range paths {
		below := c.server.privileges(c.user, strings.TrimSuffix(path, "/")+"/below")
		for _, privilege := range c.server.privileges(c.user, path) {
			if found[path] == nil {
				found[path] = map[string]int{}
			}
			found[path][privilege] = 0
			if slices.Contains(below, privilege) { // it propagates
				found[path][privilege] = 1
			}
		}
	}
	return found, nil
}

func forbidden(what string) error {
	message := "Permission check failed"
	if what != "" {
		message += " (" + what + ")"
	}
	return failure{status: http.StatusForbidden, message: message + "\n"}
}

// demand returns an error if the caller lacks one of the privileges on a path.
func (c *call) demand(path string, privileges ...string) error {
	for _, p := range privileges {
		if !c.may(path, p) {
			return forbidden(path + ", " + p)
		}
	}
	return nil
}

// demandAny returns an error if the caller has none of the privileges on a path.
func (c *call) demandAny(path string, privileges ...string) error {
	for _, p := range privileges {
		if c.may(path, p) {
			return nil
		}
	}
	return forbidden(path + ", " + strings.Join(privileges, "|"))
}

// demandVM is demand for a machine that may be created in a pool by this call.
func (c *call) demandVM(id int, pool string, privileges ...string) error {
	path := "/vms/" + strconv.Itoa(id)
	for _, p := range privileges {
		if !c.may(path, p) && (pool == "" || !c.may("/pool/"+pool, p)) {
			return forbidden(path + ", " + p)
		}
	}
	return nil
}

// onVM returns a check of privileges on the machine of a call.
func onVM(privileges ...string) func(*call) error {
	return func(c *call) error { return c.demand("/vms/"+c.params["vmid"], privileges...) }
}

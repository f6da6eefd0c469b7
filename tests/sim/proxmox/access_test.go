package proxmox_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/proxmox"
)

func TestAccess(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{
		Pools: []string{"tenants"},
		Users: []proxmox.User{
			{Name: "viti@pve", Password: "pass", Grants: everything},
			{Name: "low@pve", Grants: []proxmox.Grant{{Path: "/pool/tenants", Privileges: []string{"VM.Allocate", "VM.Audit"}}}},
		},
		Tokens: []proxmox.Token{
			{ID: tokenID, Secret: secret}, {ID: "viti@pve!separate", Secret: secret, Separate: true, Grants: []proxmox.Grant{{Path: "/vms", Privileges: []string{"VM.Audit"}}}},
			{ID: "low@pve!t", Secret: secret},
		},
	})
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100})
	cases := []struct {
		reason, authorization, method, path string
		with                                params
		status                              string
	}{
		{"no credentials", "", "GET", "/version", nil, "401 No ticket"},
		{"another secret", tokenID + "=x", "GET", "/version", nil, "401 invalid token value!"},
		{"a token that does not exist", "viti@pve!x=" + secret, "GET", "/version", nil, "401 no such token 'x' for user 'viti@pve'"},
		{"a user that does not exist", "x@pve!x=" + secret, "GET", "/version", nil, "401 no such user ('x@pve')"},
		{"a token has the privileges that it was granted", "viti@pve!separate=" + secret, "GET", "/nodes/pve1/qemu/100/config", nil, "200 OK"},
		{"a token lacks privileges that only its user has", "viti@pve!separate=" + secret, "DELETE", "/nodes/pve1/qemu/100", nil, "403 Permission check failed (/vms/100, VM.Allocate)"},
		{"a pool grants its privileges on the machines in it", "low@pve!t=" + secret, "POST", "/nodes/pve1/qemu", params{"vmid": 101, "pool": "tenants"}, "200 OK"},
		{"a pool grants no privileges on other machines", "low@pve!t=" + secret, "POST", "/nodes/pve1/qemu", params{"vmid": 102}, "403 Permission check failed"},
	}
	for _, tc := range cases {
		r.header = http.Header{}
		if tc.authorization != "" {
			r.header.Set("Authorization", "PVEAPIToken="+tc.authorization)
		}
		if a := r.call(tc.method, tc.path, tc.with); a.status != tc.status {
			t.Errorf("%s: got %q, want %q", tc.reason, a.status, tc.status)
		}
	}
	r.header = http.Header{}
	if a := r.call("POST", "/access/ticket", params{"username": "viti@pve", "password": "x"}); a.status != "401 authentication failure" {
		t.Errorf("another password: %s", a.status)
	}
	var ticket struct{ Ticket, CSRFPreventionToken string }
	if err := json.Unmarshal(r.do("POST", "/access/ticket", params{"username": "viti", "realm": "pve", "password": "pass"}), &ticket); err != nil {
		t.Fatal(err)
	}
	r.header.Set("Cookie", "PVEAuthCookie="+url.QueryEscape(ticket.Ticket))
	if a := r.call("POST", "/pools", params{"poolid": "p"}); a.status != "401 Permission denied - invalid csrf token" {
		t.Errorf("a write without a CSRF token: %s", a.status)
	}
	r.header.Set("CSRFPreventionToken", ticket.CSRFPreventionToken)
	r.do("POST", "/pools", params{"poolid": "p"})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	r := setUp(t, proxmox.Options{Plan: plan})
	set := func(rule faults.Rule) {
		t.Helper()
		rule.Times = 1
		if err := plan.Set(rule); err != nil {
			t.Fatal(err)
		}
	}
	set(faults.Rule{Operation: "POST /nodes/*/qemu", Error: "503"})
	if a := r.call("POST", "/nodes/pve1/qemu", params{"vmid": 100}); a.status != "503 Service Unavailable" || len(r.server.Machines()) != 0 {
		t.Errorf("before the effect: %s, %v", a.status, r.server.Machines())
	}
	set(faults.Rule{Operation: "POST /nodes/*/qemu", Error: "reset", After: true})
	if a := r.call("POST", "/nodes/pve1/qemu", params{"vmid": 100}); a.status != "broken" || len(r.server.Machines()) != 1 {
		t.Errorf("a lost acknowledgement: %s, %v", a.status, r.server.Machines())
	}
	set(faults.Rule{Operation: "task/qmcreate", Error: "no space"})
	if exit := r.task("POST", "/nodes/pve1/qemu", params{"vmid": 101}); exit != "no space" {
		t.Errorf("a task that fails: %s", exit)
	}
}

func TestStateSurvives(t *testing.T) {
	t.Parallel()
	options := proxmox.Options{State: filepath.Join(t.TempDir(), "state.json")}
	first := setUp(t, options)
	first.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "scsi0": "local-lvm:8", "net0": "virtio,bridge=vmbr0"})
	first.done("POST", "/nodes/pve1/qemu/100/status/start", params{})
	before := first.config("pve1", 100)
	if err := first.server.Close(); err != nil {
		t.Fatal(err)
	}
	second := setUp(t, options)
	if after := second.config("pve1", 100); after["digest"] != before["digest"] || !second.server.Machines()[0].Running || len(second.server.Volumes()) != 1 {
		t.Errorf("got %v, want %v", after, before)
	}
}

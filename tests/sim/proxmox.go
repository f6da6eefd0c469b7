package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/sim/proxmox"
)

const (
	// proxmoxProvider is the MachineProvider of the simulated Proxmox VE.
	proxmoxProvider = "proxmox"
	proxmoxUser     = "viti@pve"
	proxmoxToken    = proxmoxUser + "!stack"
)

// proxmoxRights are exactly the rights that create-vm needs.
var proxmoxRights = []proxmox.Grant{
	{Path: "/vms", Privileges: []string{
		"VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.HWType",
		"VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.GuestAgent.Audit", "VM.PowerMgmt",
	}},
	{Path: "/storage", Privileges: []string{"Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"}},
	{Path: "/storage/local", Privileges: []string{"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"}},
	{Path: "/nodes", Privileges: []string{"Sys.Audit", "Sys.AccessNetwork"}},
	{Path: "/sdn/zones/localnetwork", Privileges: []string{"SDN.Use"}},
	{Path: "/", Privileges: []string{"Sys.Audit"}},
}

// serveProxmox runs a cluster of three nodes of Proxmox VE, and creates a MachineProvider for it with
// a Secret of its credentials. The caller closes the returned value at the end.
func serveProxmox(ctx context.Context, config *rest.Config, at site, plan *faults.Plan, inside guests, router *relay, log *slog.Logger) (*proxmox.Server, error) {
	token, err := keptToken(filepath.Join(at.state, "proxmox-token"))
	if err != nil {
		return nil, err
	}
	server, err := proxmox.New(proxmox.Options{
		Plan: plan, Log: log, Firewall: true, Guests: machines{inside}, DHCP: router.onBridge, State: filepath.Join(at.state, "proxmox.json"),
		Users: []proxmox.User{{Name: proxmoxUser, Grants: proxmoxRights}}, Tokens: []proxmox.Token{{ID: proxmoxToken, Secret: token}},
	})
	if err != nil {
		return nil, err
	}
	end, err := server.Start(ctx, net.JoinHostPort(at.ip, "0"))
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	err = errors.Join(
		note(proxmoxProvider, end.URL+" (simulated)"),
		apply(ctx, config, secrets, named(proxmoxProvider, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"tokenID": proxmoxToken, "tokenSecret": token, "ca.crt": string(end.CA)},
		})),
		applyProvider(ctx, config, end.URL),
	)
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return server, nil
}

func applyProvider(ctx context.Context, config *rest.Config, url string) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	provider := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "vitistack.io/v1alpha1", "kind": "MachineProvider", "metadata": map[string]any{"name": proxmoxProvider},
		"spec": map[string]any{
			"type": "proxmox", "endpoint": map[string]any{"url": url}, "defaults": map[string]any{"storageClass": "local-lvm"},
			"credentialsRef": map[string]any{"namespace": platform, "name": proxmoxProvider},
		},
	}}
	resource := schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machineproviders"}
	if _, err := client.Resource(resource).Apply(ctx, proxmoxProvider, provider, metav1.ApplyOptions{FieldManager: "sim", Force: true}); err != nil {
		return fmt.Errorf("configure %s: %w", proxmoxProvider, err)
	}
	return nil
}

// machines are guests on Proxmox VE.
type machines struct{ guests }

// PowerOn implements proxmox.Guests.
func (m machines) PowerOn(g proxmox.Guest) error {
	guest := kubevirt.Guest{ID: g.ID, Name: g.Name, Node: g.Node, Image: g.Image, CPUs: g.CPUs, Memory: g.Memory, UserData: g.UserData}
	for _, nic := range g.NICs {
		guest.NICs = append(guest.NICs, kubevirt.NIC{Name: nic.Name, MAC: nic.MAC, Network: nic.Bridge, Addresses: nic.Addresses, Gateway: nic.Gateway})
	}
	for _, disk := range g.Disks {
		guest.Disks = append(guest.Disks, kubevirt.Disk{Name: disk.Name, Bytes: disk.Bytes, Image: disk.Image})
	}
	return m.guests.PowerOn(guest)
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// leaseTimeout bounds one attempt of a guest. A guest without a lease retries.
const leaseTimeout = time.Second

// leaser gives a client with a MAC address a lease in the subnet that contains link.
type leaser interface {
	Lease(ctx context.Context, mac string, link netip.Addr) (stand.Offer, error)
}

// simulatedLeases are the leases of a simulated Kea.
type simulatedLeases struct{ *sim.Server }

// Lease implements leaser.
func (s simulatedLeases) Lease(_ context.Context, mac string, link netip.Addr) (stand.Offer, error) {
	given, err := s.Serve(mac, link.String())
	if err != nil {
		return stand.Offer{}, err
	}
	address, err := netip.ParseAddr(given.Address)
	if err != nil {
		return stand.Offer{}, fmt.Errorf("read the address of a reservation: %w", err)
	}
	offer := stand.Offer{Address: address}
	for text := range strings.SplitSeq(given.Routers, ",") {
		if router, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			offer.Routers = append(offer.Routers, router)
		}
	}
	return offer, nil
}

// relay is the DHCP relay on the router of each network: it forwards a guest's request to Kea, with
// the network that it came from.
type relay struct {
	client dynamic.Interface
	server leaser
}

func newRelay(config *rest.Config, server leaser) (*relay, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &relay{client: client, server: server}, nil
}

var (
	attachments = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
	networks    = schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha2", Resource: "networknamespaces"}
)

// onAttachment answers a guest of KubeVirt, whose network is "namespace/name" of a
// NetworkAttachmentDefinition.
func (r *relay) onAttachment(mac, network string) (netip.Prefix, netip.Addr, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(network, "/")
	definition, err := r.client.Resource(attachments).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return netip.Prefix{}, netip.Addr{}, false
	}
	text, _, _ := unstructured.NestedString(definition.Object, "spec", "config")
	var cni struct {
		VLAN    int64 `json:"vlan"`
		Plugins []struct {
			VLAN int64 `json:"vlan"`
		} `json:"plugins"`
	}
	if json.Unmarshal([]byte(text), &cni) != nil {
		return netip.Prefix{}, netip.Addr{}, false
	}
	for _, plugin := range cni.Plugins {
		cni.VLAN = max(cni.VLAN, plugin.VLAN)
	}
	return r.lease(ctx, mac, namespace, cni.VLAN)
}

// onBridge answers a guest of Proxmox VE.
func (r *relay) onBridge(mac, _ string, vlan int) (netip.Prefix, netip.Addr, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	return r.lease(ctx, mac, metav1.NamespaceAll, int64(vlan))
}

// lease requests a lease in each network of a VLAN, until one of them has a reservation.
func (r *relay) lease(ctx context.Context, mac, namespace string, vlan int64) (netip.Prefix, netip.Addr, bool) {
	list, err := r.client.Resource(networks).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return netip.Prefix{}, netip.Addr{}, false
	}
	for _, network := range list.Items {
		tag, _, _ := unstructured.NestedInt64(network.Object, "status", "vlanId")
		text, _, _ := unstructured.NestedString(network.Object, "status", "ipv4Prefix")
		prefix, err := netip.ParsePrefix(text)
		if err != nil || tag != vlan {
			continue
		}
		offer, err := r.server.Lease(ctx, mac, prefix.Masked().Addr().Next())
		if err != nil {
			continue
		}
		gateway := netip.Addr{}
		if len(offer.Routers) > 0 {
			gateway = offer.Routers[0]
		}
		return netip.PrefixFrom(offer.Address, prefix.Bits()), gateway, true
	}
	return netip.Prefix{}, netip.Addr{}, false
}

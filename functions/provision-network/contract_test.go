package main

import (
	"testing"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// testBackend is a provider under test, as the registry creates it from environment variables, and
// what the test knows of its server.
type testBackend struct {
	variables map[string]string
	spec      v1alpha2.NetworkNamespaceSpec
	// tooLarge is a spec whose request the provider rejects permanently.
	tooLarge v1alpha2.NetworkNamespaceSpec
	// objects returns how many objects exist at the server. It is nil if the provider creates none.
	objects func() int
}

// TestProviderContract checks that every provider of the registry fulfils the contracts of
// provider.Interface, Server and Lister.
func TestProviderContract(t *testing.T) {
	t.Parallel()
	manager, library := newManager(t, 0), newLibrary(t)
	backends := map[string]testBackend{
		v1alpha2.ProviderManual: {spec: manualSpec("10.42.0.0/24", "10.42.0.1", 42), tooLarge: manualSpec("0.0.0.0/0", "", 42)},
		v1alpha2.ProviderNAM: {
			variables: map[string]string{"NAM_URL": manager.url, "NAM_TOKEN": namToken},
			spec:      namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 26}), tooLarge: namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 1}),
			objects: func() int { return len(manager.Segments()) },
		},
		v1alpha2.ProviderNetBox: {
			variables: map[string]string{"NETBOX_URL": library.url, "NETBOX_TOKEN": netboxToken},
			spec:      netboxSpec(v1alpha2.NetBoxRequest{VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}),
			tooLarge:  netboxSpec(v1alpha2.NetBoxRequest{SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 8}}),
			objects: func() int {
				prefixes, addresses, vlans := library.Taken()
				return len(prefixes) + len(addresses) + len(vlans)
			},
		},
	}
	for name, newProvider := range registry {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, ok := backends[name]
			if !ok {
				t.Fatalf("provider %s is registered, but has no row here", name)
			}
			from := newProvider(config{getenv: func(name string) string { return b.variables[name] }})
			checkContract(t, from, b)
			if server, ok := from.(provider.Server); ok {
				checkServerContract(t, server, b)
			}
		})
	}
}

func checkContract(t *testing.T, from provider.Interface, b testBackend) {
	nn := someNetwork(uidA, b.spec)
	release := func(why string) {
		t.Helper()
		if err := from.Release(t.Context(), nn); err != nil {
			t.Errorf("release %s: %v", why, err)
		}
	}
	release("a segment that does not exist")
	first, err := from.Provide(t.Context(), nn)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Check(); err != nil {
		t.Errorf("machines cannot use %s: %v", first, err)
	}
	created := 0
	if b.objects != nil {
		created = b.objects()
	}
	if again, err := from.Provide(t.Context(), nn); err != nil || !again.Same(first) || b.objects != nil && b.objects() != created {
		t.Errorf("the second call provides %s, %v: want %s, and no other object to be created", again, err, first)
	}
	_, err = from.Provide(t.Context(), someNetwork("1f5b3b9e-8f6e-4a55-9a31-0c5f6f3a7d11", b.tooLarge))
	if _, isUserError := reconcile.AsUserError(err); !isUserError && !asError(t, err).Permanent {
		t.Errorf("a request that cannot be met: got %v, want a permanent error", err)
	}
	release("the segment")
	release("the segment again")
	if b.objects != nil && b.objects() != 0 {
		t.Errorf("%d objects are left after the release", b.objects())
	}
}

func checkServerContract(t *testing.T, server provider.Server, b testBackend) {
	nn := someNetwork(uidA, b.spec)
	provided, err := server.Provide(t.Context(), nn)
	if err != nil {
		t.Fatal(err)
	}
	segment.SetStatus(nn, provided)
	created := b.objects()
	if found, err := server.Find(t.Context(), nn); err != nil || !found.Same(provided) {
		t.Errorf("found %s, %v: want %s", found, err, provided)
	}
	if err := server.CheckRequest(nn, provided); err != nil {
		t.Errorf("the segment fulfils the request: %v", err)
	}
	if err := server.CheckRequest(someNetwork(uidA, b.tooLarge), provided); err == nil {
		t.Error("a request other than that of the segment: want an error")
	}
	if lister, ok := server.(provider.Lister); ok {
		if all, err := lister.Created(t.Context()); err != nil || len(all) == 0 || all[0].UID != uidA {
			t.Errorf("listed %+v, %v: want what has the UID of the network", all, err)
		}
	}
	if b.objects() != created {
		t.Errorf("a check has left %d objects of %d", b.objects(), created)
	}
	if err := server.Release(t.Context(), nn); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Find(t.Context(), nn); asError(t, err).Reason != provider.ReasonGone || !asError(t, err).Permanent || b.objects() != 0 {
		t.Errorf("after the release: got %v, %d objects", err, b.objects())
	}
}

package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/functions/provision-network/provider/nam"
	"github.com/vitistack/stack/functions/provision-network/provider/netbox"
	"github.com/vitistack/stack/tests/sim/faults"
	namsim "github.com/vitistack/stack/tests/sim/nam"
	netboxsim "github.com/vitistack/stack/tests/sim/netbox"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	namToken    = "of-the-test"
	netboxToken = "0123456789abcdef0123456789abcdef01234567"
	uidA        = "0f5b3b9e-8f6e-4a55-9a31-0c5f6f3a7d10"
)

// manager is a simulated Network Automation Manager.
type manager struct {
	*namsim.Server
	plan  *faults.Plan
	clock *feed.Clock
	nam   provider.Server
	url   string
}

// newManager starts a manager that needs a duration for each segment.
func newManager(t *testing.T, slow time.Duration) *manager {
	t.Helper()
	m := &manager{plan: &faults.Plan{}, clock: feed.NewClock()}
	var err error
	if m.Server, err = namsim.New(namsim.Options{Token: namToken, Slow: slow, Faults: m.plan, Now: m.clock.Now}); err != nil {
		t.Fatal(err)
	}
	m.url = serve(t, m.Server) + "/v1"
	m.nam = nam.New(client(t, m.url, namToken, "")).(provider.Server)
	return m
}

// library is a simulated NetBox.
type library struct {
	*netboxsim.Server
	plan   *faults.Plan
	url    string
	netbox provider.Server
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	l := &library{plan: &faults.Plan{}}
	o := shelves()
	o.Faults, o.Token = l.plan, netboxToken
	var err error
	if l.Server, err = netboxsim.New(o); err != nil {
		t.Fatal(err)
	}
	l.url = serve(t, l.Server)
	l.netbox = netbox.New(client(t, l.url, netboxToken, "Token")).(provider.Server)
	return l
}

// create creates an object in NetBox as its administrator does.
func (l *library) create(t *testing.T, path string, fields map[string]any) {
	t.Helper()
	l.send(t, http.MethodPost, path, fields)
}

// edit changes an object in NetBox as its administrator does.
func (l *library) edit(t *testing.T, path string, fields map[string]any) {
	t.Helper()
	l.send(t, http.MethodPatch, path, fields)
}

func (l *library) send(t *testing.T, method, path string, fields map[string]any) {
	t.Helper()
	_, err := client(t, l.url, netboxToken, "Token").Do(t.Context(), httpclient.Request{Method: method, Path: path, Body: fields}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// onlyID returns the ID of the only object of a kind that has a UID. An empty UID is that of any object.
func (l *library) onlyID(t *testing.T, kind, uid string) int {
	t.Helper()
	query := url.Values{}
	if uid != "" {
		query.Set("cf_vitistack_uid", uid)
	}
	var page struct {
		Results []struct {
			ID int `json:"id"`
		} `json:"results"`
	}
	_, err := client(t, l.url, netboxToken, "Token").Do(t.Context(), httpclient.Request{Method: http.MethodGet, Path: "/api/ipam/" + kind + "/", Query: query}, &page)
	if err != nil || len(page.Results) != 1 {
		t.Fatalf("list %s: %+v, %v", kind, page, err)
	}
	return page.Results[0].ID
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func client(t *testing.T, url, token, scheme string) *httpclient.Client {
	t.Helper()
	c, err := httpclient.New(httpclient.Config{URL: url, Token: token, TokenScheme: scheme, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func someNetwork(uid string, spec v1alpha2.NetworkNamespaceSpec) *v1alpha2.NetworkNamespace {
	return &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "prod", UID: types.UID(uid)}, Spec: spec}
}

func namSpec(r v1alpha2.SegmentRequest) v1alpha2.NetworkNamespaceSpec {
	return v1alpha2.NetworkNamespaceSpec{
		DatacenterIdentifier: "no-west-az1", SupervisorIdentifier: "team-a",
		NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "nam", NAM: &r},
	}
}

// shelves returns two parent prefixes of one site. The first has room for two /26.
func shelves() netboxsim.Options {
	return netboxsim.Options{
		Parents: []netboxsim.Parent{
			{Prefix: netip.MustParsePrefix("10.50.0.0/24"), Role: "tenants", Site: "az1", Status: "active"},
			{Prefix: netip.MustParsePrefix("10.51.0.0/25"), Role: "tenants", Site: "az1"},
			{Prefix: netip.MustParsePrefix("10.52.0.0/23"), Role: "tenants", Site: "az1", CustomFields: map[string]any{"tier": "gold"}},
			{Prefix: netip.MustParsePrefix("10.53.0.0/16"), Role: "tenants", Site: "az2"},
			{Prefix: netip.MustParsePrefix("10.54.0.0/16"), Role: "tenants", Site: "az3", Location: "room-7"},
			{Prefix: netip.MustParsePrefix("2001:db8:50::/56"), Site: "az1"},
		},
		Groups: []netboxsim.Group{{Slug: "leafs", Min: 300, Max: 302}},
	}
}

func netboxSpec(r v1alpha2.NetBoxRequest) v1alpha2.NetworkNamespaceSpec {
	return v1alpha2.NetworkNamespaceSpec{DatacenterIdentifier: "az1", NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "netbox", NetBox: &r}}
}

// asError returns the provider.Error in err.
func asError(t *testing.T, err error) provider.Error {
	t.Helper()
	var e provider.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an Error", err)
	}
	return e
}

// reasonIn returns the reason of an Error, or an empty string.
func reasonIn(err error) string {
	var e provider.Error
	_ = errors.As(err, &e)
	return e.Reason
}

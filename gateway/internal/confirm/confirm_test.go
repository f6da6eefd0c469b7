package confirm_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/confirm"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// env is an API with one cluster and one network, or without them.
type env struct {
	cluster *v1alpha1.KubernetesCluster
	network *v1alpha2.NetworkNamespace
	// unread fails every read. unsynced reports that the gateway does not know all networks.
	unread, unsynced bool
}

func newEnv() *env {
	kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", UID: "c1", Generation: 2}}
	kc.Spec.Data.Environment, kc.Spec.Topology.Version = "prod", "1.33"
	kc.Status.Approval = &v1alpha1.ApprovalStatus{
		State: v1alpha1.ApprovalRequested, Generation: 2, Workorder: "WO-1",
		Requested: []v1alpha1.ApprovedPool{{Name: v1alpha1.ControlPlanePool, Replicas: 1}, {Name: "workers", Replicas: 100}},
	}
	nn := &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: "net", UID: "n1", Annotations: map[string]string{v1alpha1.AnnotationProvider: "acme"},
		Finalizers: []string{v1alpha1.FinalizerNetworkNamespace},
	}}
	nn.Spec.NetworkProvisioning = &v1alpha2.NetworkProvisioning{Provider: "acme", Parameters: map[string]string{"size": "24"}}
	nn.Status.ProvisioningPhase = v1alpha2.ProvisioningPending
	return &env{cluster: kc, network: nn}
}

func (v *env) object(_ context.Context, _, resource, namespace, name string) (*unstructured.Unstructured, error) {
	var o metav1.Object
	switch {
	case v.unread:
		return nil, errors.New("the API server does not answer")
	case resource == "kubernetesclusters" && v.cluster != nil:
		o = v.cluster
	case resource == "networknamespaces" && v.network != nil:
		o = v.network
	}
	if o == nil || o.GetNamespace() != namespace || o.GetName() != name {
		return nil, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	return &unstructured.Unstructured{Object: fields}, err
}

func (v *env) networks() (*inventory.Collection, bool) {
	c := &inventory.Collection{}
	if nn := v.network; nn != nil {
		o := &inventory.Object{UID: string(nn.UID), Annotations: nn.Annotations}
		c.Items = append(c.Items, &inventory.Item{ID: o.UID, Namespace: nn.Namespace, Name: nn.Name, Object: o})
	}
	return c, !v.unsynced
}

func request(t *testing.T, eventType, source, subject, id string, data any) event.Event {
	t.Helper()
	e := event.New()
	e.SetType(eventType)
	e.SetSource("/functions/" + source)
	e.SetSubject(subject)
	e.SetID(id)
	e.SetTime(time.Unix(1, 0))
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		t.Fatal(err)
	}
	return e
}

const (
	confirmed = "confirmed"
	refused   = "refused"
	repeat    = "repeat"
)

func outcome(err error) string {
	switch {
	case err == nil:
		return confirmed
	case errors.As(err, new(confirm.Refusal)):
		return refused
	default:
		return repeat
	}
}

func TestWorkorders(t *testing.T) {
	t.Parallel()
	const subject = "/apis/vitistack.io/v1alpha1/namespaces/team-a/kubernetesclusters/shop"
	type change struct {
		data    events.WorkorderRequested
		id      string
		subject string
		raw     string
		v       *env
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*change)
		want   string
	}{
		"Genuine":      {"bootstrap-talos requests it", func(*change) {}, confirmed},
		"Decided":      {"the ticketing system was faster than the gateway", func(c *change) { c.v.cluster.Status.Approval.State = v1alpha1.ApprovalApproved }, confirmed},
		"Counts":       {"approval for other machines than were shown", func(c *change) { c.data.Workers = 2 }, refused},
		"Workorder":    {"the work order of another change", func(c *change) { c.data.Workorder = "WO-2" }, refused},
		"Generation":   {"the next generation", func(c *change) { c.data.Generation, c.id = 3, "c1.workorder.3.60" }, refused},
		"Environment":  {"another environment", func(c *change) { c.data.Environment = "test" }, refused},
		"UID":          {"an earlier cluster of that name", func(c *change) { c.data.UID, c.id = "c0", "c0.workorder.2.60" }, refused},
		"NoCluster":    {"the cluster is deleted", func(c *change) { c.v.cluster = nil }, refused},
		"NoApproval":   {"the cluster needs none", func(c *change) { c.v.cluster.Status.Approval = nil }, refused},
		"OtherID":      {"the id of another request", func(c *change) { c.id = "c2.workorder.2.60" }, refused},
		"OtherSubject": {"the subject of another namespace", func(c *change) { c.subject = "/apis/vitistack.io/v1alpha1/namespaces/team-b/kubernetesclusters/shop" }, refused},
		"NotJSON":      {"no data", func(c *change) { c.raw = "{" }, refused},
		"NoAPI":        {"the API server does not answer", func(c *change) { c.v.unread = true }, repeat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &change{id: "c1.workorder.2.60", subject: subject, v: newEnv(), data: events.WorkorderRequested{
				Object: events.Object{UID: "c1", Namespace: "team-a", Name: "shop"}, Workorder: "WO-1", Generation: 2, ClusterID: "shop",
				Environment: "prod", Version: "1.33", ControlPlanes: 1, Workers: 100,
			}}
			tc.change(c)
			in := request(t, events.TypeWorkorderRequested, "bootstrap-talos", c.subject, c.id, c.data)
			if c.raw != "" {
				in.DataEncoded = []byte(c.raw)
			}
			_, err := (&confirm.Confirmer{Object: c.v.object, Networks: c.v.networks}).Confirm(t.Context(), in)
			if got := outcome(err); got != tc.want {
				t.Errorf("%s: %s, want %s (%v)", tc.reason, got, tc.want, err)
			}
		})
	}
}

// TestConfirmedRequestIsRewritten has a forged event say one thing to the gateway, and another to a receiver that reads JSON differently.
func TestConfirmedRequestIsRewritten(t *testing.T) {
	t.Parallel()
	v := newEnv()
	in := request(t, events.TypeWorkorderRequested, "bootstrap-talos", "/apis/vitistack.io/v1alpha1/namespaces/team-a/kubernetesclusters/shop", "c1.workorder.2.60", nil)
	in.DataEncoded = []byte(`{"uid":"c1","namespace":"team-a","name":"shop","workorder":"WO-1","generation":2,"clusterId":"shop","environment":"prod","version":"1.33","controlPlanes":1,"workers":2,"Workers":100}`)
	in.SetExtension("name", "other")
	out, err := (&confirm.Confirmer{Object: v.object, Networks: v.networks}).Confirm(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var said map[string]any
	if err := json.Unmarshal(out.Data(), &said); err != nil || said["workers"] != 100.0 || len(said) != 10 || out.Extensions()["name"] != "shop" {
		t.Errorf("the gateway delivers %s", out)
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	const subject = "/apis/vitistack.io/v1alpha2/namespaces/team-a/networknamespaces/net"
	object := events.Object{UID: "n1", Namespace: "team-a", Name: "net"}
	requested := events.NetworkRequested{Object: object, Provider: "acme", Parameters: map[string]string{"size": "24"}}
	released := events.NetworkReleased{Object: object, Provider: "acme", ID: "seg-1"}
	of := func(provider string) events.NetworkReleased {
		r := released
		r.Provider = provider
		return r
	}
	elsewhere := events.NetworkReleased{Object: events.Object{UID: "n1", Namespace: "team-b", Name: "none"}, Provider: "acme"}
	larger := requested
	larger.Parameters = map[string]string{"size": "8"}
	waits := func(*env) {}
	isReady := func(v *env) { v.network.Status.ProvisioningPhase = v1alpha2.ProvisioningReady }
	changed := func(v *env) { v.network.Spec.NetworkProvisioning.Provider = "other" }
	for name, tc := range map[string]struct {
		reason        string
		is            func(*env)
		eventType, id string
		data          any
		subject       string
		want          string
	}{
		"Requested":        {"provision-network requests it", waits, events.TypeNetworkRequested, "n1.requested.1.30", requested, subject, confirmed},
		"Answered":         {"the IPAM was faster than the gateway", isReady, events.TypeNetworkRequested, "n1.requested.1.30", requested, subject, confirmed},
		"Parameters":       {"a larger segment than the network requests", waits, events.TypeNetworkRequested, "n1.requested.1.30", larger, subject, refused},
		"AskedOther":       {"the spec names another provider", changed, events.TypeNetworkRequested, "n1.requested.1.30", requested, subject, refused},
		"AskedNone":        {"the network has no such provider", func(v *env) { v.network.Annotations = nil }, events.TypeNetworkRequested, "n1.requested.1.30", requested, subject, refused},
		"RequestedGone":    {"the network does not exist", func(v *env) { v.network = nil }, events.TypeNetworkRequested, "n1.requested.1.30", requested, subject, refused},
		"RequestedDeleted": {"the network is being deleted", func(v *env) { v.network.DeletionTimestamp = &now }, events.TypeNetworkRequested, "n1.requested.1.30", requested, subject, refused},
		"RequestedOldUID":  {"an earlier network of that name", func(v *env) { v.network.UID = "n2" }, events.TypeNetworkRequested, "n1.requested.1.30", requested, subject, refused},
		"RequestedMoved":   {"a network that was created again keeps its first UID at the IPAM", moved, events.TypeNetworkRequested, "n1.requested.1.30", requested, subject, confirmed},
		"WrongID":          {"the id of another network", waits, events.TypeNetworkRequested, "n2.requested.1.30", requested, subject, refused},

		"ReleasedReady":   {"machines use the segment", isReady, events.TypeNetworkReleased, "n1.released.acme.1", released, subject, refused},
		"ReleasedOther":   {"another IPAM's name for an IPAM that does not read it", isReady, events.TypeNetworkReleased, "n1.released.other.1", of("other"), subject, refused},
		"ReleasedWaits":   {"the network waits for this segment", waits, events.TypeNetworkReleased, "n1.released.acme.1", released, subject, refused},
		"ReleasedChanged": {"the spec names another provider, and the annotation is not written yet", changed, events.TypeNetworkReleased, "n1.released.acme.2", released, subject, confirmed},
		"ReleasedRefused": {"the spec of a Ready network names another provider, and it keeps its segment", func(v *env) { isReady(v); changed(v) }, events.TypeNetworkReleased, "n1.released.acme.2", released, subject, refused},
		"ReleasedGone":    {"the network is deleted", func(v *env) { v.network = nil }, events.TypeNetworkReleased, "n1.released.acme.2", released, subject, confirmed},
		"LateAnswer":      {"an answer came after the deletion", func(v *env) { v.network = nil }, events.TypeNetworkReleased, "n1.released.acme.7", released, subject, confirmed},
		"ReleasedAgain":   {"another network has the name", func(v *env) { v.network.UID = "n2" }, events.TypeNetworkReleased, "n1.released.acme.2", released, subject, confirmed},
		"InUse":           {"machines may still use a network that is being deleted", func(v *env) { v.network.DeletionTimestamp = &now }, events.TypeNetworkReleased, "n1.released.acme.2", released, subject, repeat},
		"OtherFinalizer":  {"another controller keeps a network that is released", func(v *env) { v.network.DeletionTimestamp, v.network.Finalizers = &now, []string{"example.com/x"} }, events.TypeNetworkReleased, "n1.released.acme.2", released, subject, confirmed},
		"Elsewhere":       {"the data names another place than the network with this UID has", isReady, events.TypeNetworkReleased, "n1.released.acme.2", elsewhere, "/apis/vitistack.io/v1alpha2/namespaces/team-b/networknamespaces/none", refused},
		"ReleasedMoved":   {"a network that was created again keeps its first UID at the IPAM", func(v *env) { moved(v); isReady(v) }, events.TypeNetworkReleased, "n1.released.acme.2", released, subject, refused},
		"Unsynced":        {"the gateway does not know all networks yet", func(v *env) { v.network, v.unsynced = nil, true }, events.TypeNetworkReleased, "n1.released.acme.2", released, subject, repeat},
		"OtherProviderID": {"the id of the release of another provider", func(v *env) { v.network = nil }, events.TypeNetworkReleased, "n1.released.other.2", released, subject, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newEnv()
			tc.is(v)
			in := request(t, tc.eventType, "provision-network", tc.subject, tc.id, tc.data)
			out, err := (&confirm.Confirmer{Object: v.object, Networks: v.networks}).Confirm(t.Context(), in)
			if got := outcome(err); got != tc.want {
				t.Errorf("%s: %s, want %s (%v)", tc.reason, got, tc.want, err)
			}
			if err == nil && (string(out.Data()) != string(in.Data()) || out.Extensions()["provider"] != "acme" || out.Validate() != nil) {
				t.Errorf("the gateway delivers %s", out)
			}
		})
	}
}

// moved gives the network a new UID, as a move to another management cluster does.
func moved(v *env) {
	v.network.UID = types.UID("n9")
	v.network.Annotations[v1alpha1.AnnotationFormerUIDs] = "n1"
}

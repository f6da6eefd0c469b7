package confirm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

var networkRequest = request{"provision-network", v1alpha2.GroupVersion.String(), "NetworkNamespace", "networknamespaces"}

// own are the providers that receive no events.
var own = []string{v1alpha2.ProviderManual, v1alpha2.ProviderNAM, v1alpha2.ProviderNetBox}

// confirmNetworkRequest confirms a request for the segment of a network that has recorded its provider. A request that is answered
// meanwhile is confirmed too.
func (c *Confirmer) confirmNetworkRequest(ctx context.Context, in event.Event) (event.Event, error) {
	var data events.NetworkRequested
	if err := decode(in, &data); err != nil {
		return in, err
	}
	if err := networkRequest.check(in, data.Object, data.UID+".requested"); err != nil {
		return in, err
	}
	nn, err := c.network(ctx, data.Object)
	if err != nil {
		return in, err
	}
	if nn == nil || nn.DeletionTimestamp != nil {
		return in, Refuse("NetworkNamespace %s/%s with the UID %s does not exist, or is being deleted", data.Namespace, data.Name, data.UID)
	}
	want := events.NetworkRequested{
		Object: data.Object, Provider: nn.Annotations[v1alpha1.AnnotationProvider],
		DatacenterIdentifier: string(nn.Spec.DatacenterIdentifier), SupervisorIdentifier: string(nn.Spec.SupervisorIdentifier),
	}
	if np := nn.Spec.NetworkProvisioning; np != nil {
		want.Parameters = np.Parameters
	}
	provider, _ := plan.ProviderOf(nn.Spec)
	same := data.Provider == want.Provider && data.DatacenterIdentifier == want.DatacenterIdentifier &&
		data.SupervisorIdentifier == want.SupervisorIdentifier && maps.Equal(data.Parameters, want.Parameters)
	if !same || provider != data.Provider || slices.Contains(own, provider) {
		return in, Refuse("NetworkNamespace %s/%s requests something else of provider %s", data.Namespace, data.Name, provider)
	}
	return c.networkEvent(in, data.Object, data.Provider, want)
}

// confirmRelease confirms the release of a segment:
//
//	network                                     release
//	does not exist                              confirmed
//	is deleted, and its finalizer is removed    confirmed
//	is deleted, and has its finalizer           not yet: its finalizer is removed after the release
//	Ready, or in use                            refused
//	waits, and its spec names this provider     refused
//	waits, and its spec names another provider  confirmed
func (c *Confirmer) confirmRelease(ctx context.Context, in event.Event) (event.Event, error) {
	var data events.NetworkReleased
	if err := decode(in, &data); err != nil {
		return in, err
	}
	if err := networkRequest.check(in, data.Object, data.UID+".released."+data.Provider); err != nil {
		return in, err
	}
	at, err := c.find(data.Object)
	if err != nil {
		return in, err
	}
	nn, err := c.network(ctx, at)
	if err != nil {
		return in, err
	}
	switch provider := ""; {
	case nn == nil:
	case nn.DeletionTimestamp != nil && slices.Contains(nn.Finalizers, v1alpha1.FinalizerNetworkNamespace):
		return in, fmt.Errorf("the finalizer %s of NetworkNamespace %s/%s is not removed yet", v1alpha1.FinalizerNetworkNamespace, at.Namespace, at.Name)
	case nn.DeletionTimestamp != nil:
	case at != data.Object, plan.HoldsSegment(nn):
		return in, Refuse("it releases the segment of NetworkNamespace %s/%s, which exists", at.Namespace, at.Name)
	default:
		if provider, _ = plan.ProviderOf(nn.Spec); provider == data.Provider {
			return in, Refuse("it releases the segment that NetworkNamespace %s/%s requests of provider %s", at.Namespace, at.Name, provider)
		}
	}
	return c.networkEvent(in, data.Object, data.Provider, data)
}

func (c *Confirmer) networkEvent(in event.Event, o events.Object, provider string, data any) (event.Event, error) {
	out, err := networkRequest.event(in, o, data)
	out.SetExtension("provider", provider)
	return out, err
}

// network returns the network at a place if it has a UID, or nil.
func (c *Confirmer) network(ctx context.Context, o events.Object) (*v1alpha2.NetworkNamespace, error) {
	nn := &v1alpha2.NetworkNamespace{}
	exists, err := c.read(ctx, networkRequest, o, nn)
	if err != nil || !exists || string(v1alpha1.OriginalUID(nn)) != o.UID {
		return nil, err
	}
	return nn, nil
}

// find returns the place of the known network with a UID, or o itself if there is none.
func (c *Confirmer) find(o events.Object) (events.Object, error) {
	all, complete := c.Networks()
	if !complete {
		return o, errors.New("the gateway does not know all NetworkNamespaces yet")
	}
	i := slices.IndexFunc(all.Items, func(i *inventory.Item) bool { return originalUID(i) == o.UID })
	if i < 0 {
		return o, nil
	}
	return events.Object{UID: o.UID, Namespace: all.Items[i].Namespace, Name: all.Items[i].Name}, nil
}

// originalUID returns the first UID of the network of an item.
func originalUID(i *inventory.Item) string {
	return string(v1alpha1.OriginalUID(&metav1.ObjectMeta{UID: types.UID(i.Object.UID), Annotations: i.Object.Annotations}))
}

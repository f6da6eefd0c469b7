package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// source is where segments come from. There is one file for each.
type source interface {
	// Provide returns the segment of nn, which it makes at the first call; every
	// later call for the same UID returns the same segment. It returns errPending
	// while the segment is being made, refused where the owner of the network has
	// to change something, and any other error for what another try may mend.
	Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error)
	// Release gives the segment of nn back. It is no error if there is none, and
	// errPending while it is being given back.
	Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error
}

// errPending says that a source is at work, and has to be asked again.
var errPending = errors.New("the source is still at work")

// refused says that a source will not provide a segment until the owner of the
// network changes something. reason is one word, message says what to change.
type refused struct{ reason, message string }

func (r refused) Error() string { return r.reason + ": " + r.message }

type function struct {
	kube    *kube.Client
	sources map[string]source
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	if ref.Kind != "NetworkNamespace" {
		return nil, f.userGone(ctx, ref.Namespace)
	}
	return nil, kube.OnConflict(func() error { return f.settle(ctx, ref.Namespace, ref.Name) })
}

// userGone looks at the networks of a namespace that wait for their users to go.
func (f *function) userGone(ctx context.Context, namespace string) error {
	list := &v1alpha2.NetworkNamespaceList{}
	if err := f.kube.List(ctx, namespace, "", list); err != nil {
		return err
	}
	for _, nn := range list.Items {
		if nn.DeletionTimestamp == nil {
			continue
		}
		if err := kube.OnConflict(func() error { return f.settle(ctx, nn.Namespace, nn.Name) }); err != nil {
			return err
		}
	}
	return nil
}

// settle brings one NetworkNamespace a step further.
func (f *function) settle(ctx context.Context, namespace, name string) error {
	nn := &v1alpha2.NetworkNamespace{}
	if err := f.kube.Get(ctx, namespace, name, nn); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if nn.DeletionTimestamp != nil {
		return f.release(ctx, nn)
	}
	before := nn.DeepCopy()
	if kube.AddFinalizer(nn, v1alpha1.FinalizerNetworkNamespace) {
		if _, err := f.kube.Patch(ctx, before, nn); err != nil {
			return err
		}
		before = nn.DeepCopy()
	}
	seg, err := f.provide(ctx, nn)
	told := decide(nn, seg, err)
	if err := f.write(ctx, before, nn, told); err != nil {
		return err
	}
	if err != nil && !errors.As(err, new(refused)) && !errors.Is(err, errPending) {
		return fmt.Errorf("provide network %s/%s: %w", namespace, name, err)
	}
	return nil
}

// provide asks the one source that the network selects.
func (f *function) provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error) {
	provider, _ := providerOf(nn.Spec)
	from, ok := f.sources[provider]
	if !ok {
		return segment{}, refused{"ProviderNotAvailable", fmt.Sprintf(
			"this installation has no provider %s: set spec.networkProvisioning.provider to one of %s", provider, f.available())}
	}
	return from.Provide(ctx, nn)
}

func (f *function) available() string {
	names := make([]string, 0, len(f.sources))
	for name := range f.sources {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// release waits for the users of the network to go, gives the segment back, and
// then lets the object go.
func (f *function) release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	users, err := f.users(ctx, nn)
	if err != nil {
		return err
	}
	before := nn.DeepCopy()
	if len(users) > 0 {
		return f.write(ctx, before, nn, deleting(nn, "InUse", "waits for "+sentence(users)+" to be deleted"))
	}
	provider, _ := providerOf(nn.Spec)
	if from, ok := f.sources[provider]; ok {
		switch err := from.Release(ctx, nn); {
		case errors.Is(err, errPending):
			return f.write(ctx, before, nn, deleting(nn, "Releasing", "waits for provider "+provider+" to take the segment back"))
		case err != nil:
			return fmt.Errorf("release network %s/%s: %w", nn.Namespace, nn.Name, err)
		}
	}
	kube.RemoveFinalizer(nn, v1alpha1.FinalizerNetworkNamespace)
	if _, err := f.kube.Patch(ctx, before, nn); err != nil && !kube.NotFound(err) {
		return err
	}
	events.Report(ctx, "Deleting", "Released network")
	return nil
}

// users names what still has addresses of the network.
func (f *function) users(ctx context.Context, nn *v1alpha2.NetworkNamespace) ([]string, error) {
	allocations, configurations := &v1alpha2.IPAllocationList{}, &v1alpha1.NetworkConfigurationList{}
	if err := f.kube.List(ctx, nn.Namespace, "", allocations); err != nil {
		return nil, err
	}
	if err := f.kube.List(ctx, nn.Namespace, "", configurations); err != nil {
		return nil, err
	}
	var users []string
	for _, c := range configurations.Items {
		if c.Spec.NetworkNamespaceName == nn.Name || c.Status.NetworkNamespaceName == nn.Name {
			users = append(users, "NetworkConfiguration "+c.Name)
		}
	}
	for _, a := range allocations.Items {
		if a.Spec.NetworkNamespaceName == nn.Name && a.Spec.NetworkConfigurationName == "" {
			users = append(users, "IPAllocation "+a.Name)
		}
	}
	slices.Sort(users)
	return users, nil
}

// write patches the status if it has changed, and tells people if the reason has.
func (f *function) write(ctx context.Context, before, nn *v1alpha2.NetworkNamespace, told story) error {
	if _, err := f.kube.PatchStatus(ctx, before, nn); err != nil {
		return err
	}
	if told.news {
		f.kube.Tell(ctx, nn, told.warning, told.reason, told.message)
	}
	events.Report(ctx, nn.Status.Phase, told.message)
	return nil
}

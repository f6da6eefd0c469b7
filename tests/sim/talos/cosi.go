package talos

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resources are the COSI resources of a machine. They are built at the first request, and kept up to
// date until the end of the boot.
type resources struct {
	state  state.State
	server *server.State
	shown  map[shownKey]resource.Resource
}

type shownKey struct {
	namespace resource.Namespace
	kind      resource.Type
	id        resource.ID
}

// definitions registers the namespaces and types of resources once. They are the same for every
// machine.
var definitions = sync.OnceValues(func() (state.CoreState, error) {
	core := inmem.NewState(meta.NamespaceName)
	st := state.WrapCore(namespaced.NewState(func(resource.Namespace) state.CoreState { return core }))
	ctx := context.Background()
	namespaces, types := registry.NewNamespaceRegistry(st), registry.NewResourceRegistry(st)
	if err := namespaces.RegisterDefault(ctx); err != nil {
		return nil, err
	}
	if err := types.RegisterDefault(ctx); err != nil {
		return nil, err
	}
	for _, name := range resourceNamespaces {
		if err := namespaces.Register(ctx, name, ""); err != nil {
			return nil, err
		}
	}
	for _, r := range resourceTypes {
		if err := types.Register(ctx, r); err != nil {
			return nil, err
		}
	}
	return core, nil
})

func newResources() (*resources, error) {
	defined, err := definitions()
	if err != nil {
		return nil, fmt.Errorf("define the resources: %w", err)
	}
	st := state.WrapCore(namespaced.NewState(func(ns resource.Namespace) state.CoreState {
		if ns == meta.NamespaceName {
			return defined
		}
		return inmem.NewState(ns)
	}))
	return &resources{
		state: st, server: server.NewState(state.WrapCore(state.Filter(st, accessTo(st)))),
		shown: map[shownKey]resource.Resource{},
	}, nil
}

// accessTo lets every client read resources that are not sensitive, and administrators read every
// resource. No client may write.
func accessTo(st state.State) state.FilteringRule {
	return func(ctx context.Context, access state.Access) error {
		if !access.Verb.Readonly() {
			return status.Error(codes.PermissionDenied, "write access is not allowed")
		}
		rd, err := safe.StateGet[*meta.ResourceDefinition](ctx, st,
			resource.NewMetadata(meta.NamespaceName, meta.ResourceDefinitionType, strings.ToLower(access.ResourceType), resource.VersionUndefined))
		switch {
		case state.IsNotFoundError(err):
			return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
		case err != nil:
			return err
		case rd.TypedSpec().Sensitivity == meta.Sensitive && !rolesOf(ctx).Includes(role.Admin):
			return errNotAuthorized
		}
		_, err = st.Get(ctx, resource.NewMetadata(meta.NamespaceName, meta.NamespaceType, access.ResourceNamespace, resource.VersionUndefined))
		if state.IsNotFoundError(err) {
			return status.Errorf(codes.PermissionDenied, "namespace %q is not supported", access.ResourceNamespace)
		}
		return err
	}
}

// open builds the resources if necessary.
func (b *boot) open() (*server.State, error) {
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if b.cosi == nil {
		r, err := newResources()
		if err != nil {
			return nil, err
		}
		b.cosi = r
		b.refresh()
	}
	return b.cosi.server, nil
}

// refresh updates the resources. Callers hold Fleet.mu.
func (b *boot) refresh() {
	if b.cosi == nil {
		return
	}
	if err := b.cosi.show(context.Background(), b.resources()); err != nil {
		b.fail("publish resources", err)
	}
}

// show makes exactly the given resources exist.
func (r *resources) show(ctx context.Context, all []resource.Resource) error {
	wanted := make(map[shownKey]bool, len(all))
	for _, next := range all {
		key := shownKey{next.Metadata().Namespace(), next.Metadata().Type(), next.Metadata().ID()}
		wanted[key] = true
		present, exists := r.shown[key]
		switch {
		case !exists:
			if err := r.state.Create(ctx, next); err != nil {
				return err
			}
		case reflect.DeepEqual(present.Spec(), next.Spec()):
			continue
		default:
			next.Metadata().SetVersion(present.Metadata().Version())
			if err := r.state.Update(ctx, next); err != nil {
				return err
			}
		}
		current, err := r.state.Get(ctx, next.Metadata())
		if err != nil {
			return err
		}
		r.shown[key] = current
	}
	for key, present := range r.shown {
		if wanted[key] {
			continue
		}
		if err := r.state.Destroy(ctx, present.Metadata()); err != nil {
			return err
		}
		delete(r.shown, key)
	}
	return nil
}

// stateService serves the resources.
type stateService struct {
	cosi.UnimplementedStateServer
	boot *boot
}

// Get reads one resource.
func (s *stateService) Get(ctx context.Context, in *cosi.GetRequest) (*cosi.GetResponse, error) {
	st, err := s.boot.open()
	if err != nil {
		return nil, err
	}
	return st.Get(ctx, in)
}

// List reads the resources of a type.
func (s *stateService) List(in *cosi.ListRequest, out cosi.State_ListServer) error {
	st, err := s.boot.open()
	if err != nil {
		return err
	}
	return st.List(in, out)
}

// Create is not permitted.
func (s *stateService) Create(ctx context.Context, in *cosi.CreateRequest) (*cosi.CreateResponse, error) {
	st, err := s.boot.open()
	if err != nil {
		return nil, err
	}
	return st.Create(ctx, in)
}

// Update is not permitted.
func (s *stateService) Update(ctx context.Context, in *cosi.UpdateRequest) (*cosi.UpdateResponse, error) {
	st, err := s.boot.open()
	if err != nil {
		return nil, err
	}
	return st.Update(ctx, in)
}

// Destroy is not permitted.
func (s *stateService) Destroy(ctx context.Context, in *cosi.DestroyRequest) (*cosi.DestroyResponse, error) {
	st, err := s.boot.open()
	if err != nil {
		return nil, err
	}
	return st.Destroy(ctx, in)
}

// Watch streams changes.
func (s *stateService) Watch(in *cosi.WatchRequest, out cosi.State_WatchServer) error {
	st, err := s.boot.open()
	if err != nil {
		return err
	}
	return st.Watch(in, out)
}

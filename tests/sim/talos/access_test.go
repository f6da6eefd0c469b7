package talos_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/vitistack/stack/tests/sim/talos"
)

// calls are methods that require different roles.
var calls = map[string]func(context.Context, *client.Client) error{
	"Version": func(ctx context.Context, c *client.Client) error { _, err := c.Version(ctx); return err },
	"Members": func(ctx context.Context, c *client.Client) error {
		_, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
		return err
	},
	"Snapshot": func(ctx context.Context, c *client.Client) error {
		s, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
		if err != nil {
			return err
		}
		_, err = s.Read(make([]byte, 1))
		return errors.Join(err, s.Close())
	},
	"Kubeconfig": func(ctx context.Context, c *client.Client) error { _, err := c.Kubeconfig(ctx); return err },
	"Config": func(ctx context.Context, c *client.Client) error {
		_, err := safe.StateGetByID[*configres.MachineConfig](ctx, c.COSI, configres.ActiveID)
		return err
	},
	"Status": func(ctx context.Context, c *client.Client) error {
		_, err := safe.StateGetByID[*runtime.MachineStatus](ctx, c.COSI, runtime.MachineStatusID)
		return err
	},
	"Bootstrap": func(ctx context.Context, c *client.Client) error {
		err := c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
		if client.StatusCode(err) == codes.AlreadyExists {
			return nil // permitted, and done already
		}
		return err
	},
}

func TestRoles(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 0)
	cases := map[string]struct {
		reason string
		roles  []role.Role
		may    []string
	}{
		"Admin":        {"administrators may do everything", []role.Role{role.Admin}, []string{"Version", "Members", "Snapshot", "Kubeconfig", "Config", "Status", "Bootstrap"}},
		"Operator":     {"operators may not read secrets", []role.Role{role.Operator}, []string{"Version", "Members", "Snapshot", "Status"}},
		"Reader":       {"readers may read what is not secret", []role.Role{role.Reader}, []string{"Version", "Members", "Status"}},
		"Backup":       {"a backup job may use etcd only", []role.Role{role.EtcdBackup}, []string{"Members", "Snapshot"}},
		"Impersonator": {"an impersonator without a named role has none", []role.Role{role.Impersonator}, nil},
		"None":         {"an unknown role has no rights", []role.Role{"os:unknown"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := r.client(2, tc.roles...)
			for call, do := range calls {
				want := codes.PermissionDenied
				if slices.Contains(tc.may, call) {
					want = codes.OK
				}
				check(t, tc.reason+": "+call, do(t.Context(), c), want)
			}
		})
	}
	t.Run("Impersonated", func(t *testing.T) {
		t.Parallel()
		c := r.client(2, role.Impersonator)
		as := metadata.AppendToOutgoingContext(t.Context(), "talos-role", string(role.Reader))
		check(t, "the impersonated role may read", calls["Version"](as, c), codes.OK)
		check(t, "the impersonated role may not bootstrap", calls["Bootstrap"](as, c), codes.PermissionDenied)
	})
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	r.up(2)
	stranger := r.clientOf(r.foreign(), 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := stranger.Version(ctx)
	check(t, "another cluster's administrator", err, codes.Unavailable)
	_, err = r.insecure(2).Version(ctx)
	check(t, "a client without a certificate", err, codes.Unavailable)
}

func TestForwarding(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	c := r.cluster(1, 1)
	worker := r.up(3)
	t.Run("One", func(t *testing.T) {
		t.Parallel()
		resp, err := c.MachineClient.Hostname(client.WithNode(t.Context(), r.addr(3)), nil)
		if err != nil || resp.Messages[0].Hostname != "worker-3" {
			t.Errorf("a call for the worker got %v, %v", resp, err)
		}
	})
	t.Run("ByHostname", func(t *testing.T) {
		t.Parallel()
		resp, err := c.MachineClient.Hostname(client.WithNode(t.Context(), "worker-3"), nil)
		if err != nil || resp.Messages[0].Hostname != "worker-3" {
			t.Errorf("a call for the worker by name got %v, %v", resp, err)
		}
	})
	t.Run("Many", func(t *testing.T) {
		t.Parallel()
		resp, err := c.MachineClient.Hostname(client.WithNodes(t.Context(), r.addr(2), r.addr(3), r.addr(9)), nil)
		if err != nil || len(resp.Messages) != 3 {
			t.Fatalf("a call for three nodes got %v, %v", resp, err)
		}
		for i, n := range []int{2, 3, 9} {
			if got := resp.Messages[i].Metadata.Hostname; got != r.addr(n) {
				t.Errorf("answer %d is labelled %s, want %s", i, got, r.addr(n))
			}
		}
		if resp.Messages[2].Metadata.Error == "" {
			t.Error("the answer for a machine that is off must contain the error")
		}
	})
	t.Run("ManyResources", func(t *testing.T) {
		t.Parallel()
		_, err := safe.StateListAll[*runtime.MachineStatus](client.WithNodes(t.Context(), r.addr(2), r.addr(3)), c.COSI)
		check(t, "resources of many nodes at once", err, codes.InvalidArgument)
	})
	t.Run("OneResource", func(t *testing.T) {
		t.Parallel()
		list, err := safe.StateListAll[*runtime.MachineStatus](client.WithNode(t.Context(), r.addr(3)), c.COSI)
		if err != nil || list.Len() != 1 {
			t.Errorf("resources of the worker: %v, %v", list, err)
		}
	})
	t.Run("RolesTravel", func(t *testing.T) {
		t.Parallel()
		_, err := safe.StateGetByID[*configres.MachineConfig](client.WithNode(t.Context(), r.addr(3)), r.client(2, role.Reader).COSI, configres.ActiveID)
		check(t, "a reader on another node", err, codes.PermissionDenied)
	})
	t.Run("FromWorker", func(t *testing.T) {
		t.Parallel()
		_, err := worker.Version(client.WithNode(t.Context(), r.addr(2)))
		check(t, "workers do not forward calls", err, codes.PermissionDenied)
		_, err = worker.Version(client.WithNode(t.Context(), r.addr(3)))
		check(t, "a worker answers a call for itself", err, codes.OK)
	})
}

package talos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/apis/cluster/plan"
)

// Paths on a node.
const (
	// etcdData is the folder with the data of etcd.
	etcdData = "/var/lib/etcd"
	// bootIDFile changes with each boot.
	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// ReadEtcdService returns the state of the service etcd of a control plane.
func ReadEtcdService(ctx context.Context, address string, a *Credentials) (plan.EtcdService, error) {
	ctx, c, end, err := Connect(ctx, address, a, ShortTimeout)
	if err != nil {
		return plan.EtcdService{}, err
	}
	defer end()
	return etcdServiceOf(ctx, c, address)
}

func etcdServiceOf(ctx context.Context, c *client.Client, address string) (plan.EtcdService, error) {
	info, err := c.ServiceInfo(ctx, "etcd")
	if err != nil {
		return plan.EtcdService{}, fmt.Errorf("read service etcd of %s: %w", address, err)
	}
	if len(info) == 0 {
		return plan.EtcdService{}, fmt.Errorf("read service etcd of %s: there is none", address)
	}
	s := plan.EtcdService{State: info[0].Service.GetState()}
	if s.State != plan.EtcdPreparing {
		return s, nil
	}
	if s.Empty, err = isEmptyFolder(ctx, c, etcdData); err != nil {
		return s, fmt.Errorf("list %s of %s: %w", etcdData, address, err)
	}
	if s.BootID, err = readFile(ctx, c, bootIDFile); err != nil {
		return s, fmt.Errorf("read the boot ID of %s: %w", address, err)
	}
	return s, nil
}

// isEmptyFolder reports whether a folder of a node has no entries.
func isEmptyFolder(ctx context.Context, c *client.Client, folder string) (bool, error) {
	list, err := c.LS(ctx, &machine.ListRequest{Root: folder})
	if err != nil {
		return false, err
	}
	for {
		entry, err := list.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, err
		case entry.GetError() != "" || entry.GetRelativeName() != ".":
			return false, nil
		}
	}
}

// maxFile is the number of bytes that are read of a file of a node.
const maxFile = 4096

// readFile returns the text of a small file of a node.
func readFile(ctx context.Context, c *client.Client, path string) (string, error) {
	from, err := c.Read(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	text, err := io.ReadAll(io.LimitReader(from, maxFile))
	return strings.TrimSpace(string(text)), err
}

// Bootstrap has a node bootstrap etcd. AlreadyExists counts as success: the answer to an earlier
// request may be lost.
func Bootstrap(ctx context.Context, address string, a *Credentials) error {
	ctx, c, end, err := Connect(ctx, address, a, longTimeout)
	if err != nil {
		return err
	}
	defer end()
	err = c.Bootstrap(ctx, &machine.BootstrapRequest{})
	if err == nil || status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return fmt.Errorf("bootstrap etcd on %s: %w", address, err)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Times after which a bootstrap request is sent again to a node that has not booted since.
// Each request begins the pull of etcd's image again, so that an accepted one is given
// the time of a slow pull.
const (
	acceptedPatience = 5 * time.Minute
	unansweredTime   = 10 * time.Second
)

// Paths on a node.
const (
	// etcdData is where a control plane has the data of etcd.
	etcdData = "/var/lib/etcd"
	// bootIDFile changes with each boot.
	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// etcdService is the service etcd of a control plane.
type etcdService struct {
	// state is Talos's word for it: Waiting, Preparing, Running and so on.
	state string
	// empty is whether there is no data of etcd on the node. It is only known while the
	// service is Preparing: before that the disk may not be mounted.
	empty bool
	// boot is the node's boot ID.
	boot string
}

// begun reports whether the node has the data of an etcd.
func (s etcdService) begun() bool {
	return s.state == etcdRunning || (s.state == etcdPreparing && !s.empty)
}

// States of the service etcd. One that waits for a bootstrap, for its image or for an etcd
// to join is Preparing.
const (
	etcdRunning   = "Running"
	etcdPreparing = "Preparing"
)

// bootstrapStep is what is done about the chosen machine.
type bootstrapStep string

const (
	bootstrapDone bootstrapStep = "Done"
	bootstrapSend bootstrapStep = "Send"
	bootstrapWait bootstrapStep = "Wait"
)

// nextBootstrap decides whether the chosen machine is sent a bootstrap request:
//
//	has data of etcd                       done
//	etcd is not Preparing yet              wait
//	no request has been sent               send
//	it has booted since the last request   send: the request was in memory only
//	the last one has no answer in time     send: it may not have arrived, or not been sent
//	the last one was accepted long ago     send: it came to nothing
//	otherwise                              wait: another request begins the pull again
func nextBootstrap(s etcdService, last *v1alpha1.BootstrapRequest, now time.Time) bootstrapStep {
	switch {
	case s.begun():
		return bootstrapDone
	case s.state != etcdPreparing:
		return bootstrapWait
	case last == nil, last.BootID != s.boot:
		return bootstrapSend
	case now.Sub(last.Time.Time) >= pick(last.Accepted, acceptedPatience, unansweredTime):
		return bootstrapSend
	default:
		return bootstrapWait
	}
}

// bootstrapMachine has the chosen machine begin etcd, and waits until it has. begun is
// whether etcd has been seen on it before.
func (f *function) bootstrapMachine(ctx context.Context, c *cluster, m *v1alpha1.Machine, begun bool) error {
	state, _ := probe(ctx, addressOf(m), c.access)
	var service etcdService
	err := errNotOurs
	if state == stateOurs {
		service, err = readEtcdService(ctx, addressOf(m), c.access)
	}
	switch {
	case err != nil && begun:
		c.bootstrapped = true
		return nil
	case err != nil:
		return f.waitForNode(c, m, state)
	}
	last := c.Status.BootstrapRequest
	step := nextBootstrap(service, last, f.now())
	if step == bootstrapSend && (begun || last != nil) {
		var others beginning
		if f.askOthers(ctx, c, &others); others.others {
			step = bootstrapDone
		} else if len(others.silent) > 0 {
			return waitForEtcdAnswers(others.silent, "since node "+m.Name+" has lost the request to begin it")
		}
	}
	switch {
	case step == bootstrapDone:
		c.bootstrapped, c.Status.BootstrapRequest = true, nil
		return nil
	case step == bootstrapSend && !c.bootstrapSent:
		if err := f.sendBootstrap(ctx, c, m, service.boot); err != nil {
			return err
		}
	case service.state != etcdPreparing:
		return waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for node %s to be ready for etcd, which is %s", m.Name, service.state), silent: true}
	}
	return waits{reason: "WaitingForEtcd", message: fmt.Sprintf("waits for node %s to pull the image of etcd and begin it", m.Name), silent: true}
}

var errNotOurs = errors.New("the node does not show a certificate of the cluster")

// sendBootstrap records a bootstrap request, and sends it once in a delivery. One that was
// recorded for this boot and has no answer is sent without another record.
func (f *function) sendBootstrap(ctx context.Context, c *cluster, m *v1alpha1.Machine, boot string) error {
	if last := c.Status.BootstrapRequest; last == nil || last.BootID != boot || last.Accepted {
		c.Status.BootstrapRequest = &v1alpha1.BootstrapRequest{Time: metav1.NewTime(f.now()), BootID: boot}
		if err := f.patchStatus(ctx, c); err != nil {
			return err
		}
	}
	c.bootstrapSent = true
	if err := bootstrap(ctx, addressOf(m), c.access); err != nil {
		return waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for node %s to accept the request to begin etcd", m.Name), silent: true}
	}
	c.Status.BootstrapRequest.Accepted = true
	return nil
}

// waitForNode says why the chosen machine cannot be asked about etcd.
func (f *function) waitForNode(c *cluster, m *v1alpha1.Machine, state nodeState) error {
	message := fmt.Sprintf("waits for node %s to start with its configuration", m.Name)
	if state == stateSkewed {
		return skewed(m)
	}
	if since, applied := conditionSince(c.KubernetesCluster, v1alpha1.ConditionConfigApplied, "ConfigApplied"); state == stateMaintenance && applied && f.now().Sub(since) > configuredPatience {
		message += fmt.Sprintf("; if it has lost that, by a new disk or a reset, delete Machine %s", m.Name)
	}
	return waits{reason: "WaitingForNode", message: message, silent: true}
}

// configuredPatience is how long a node may take to start with its configuration. It shows
// the certificate of maintenance mode until it has.
const configuredPatience = 5 * time.Minute

// readEtcdService asks a control plane for its service etcd.
func readEtcdService(ctx context.Context, address string, a *access) (etcdService, error) {
	ctx, c, end, err := talk(ctx, address, a, shortRPC)
	if err != nil {
		return etcdService{}, err
	}
	defer end()
	return etcdServiceOf(ctx, c, address)
}

func etcdServiceOf(ctx context.Context, c *client.Client, address string) (etcdService, error) {
	info, err := c.ServiceInfo(ctx, "etcd")
	if err != nil {
		return etcdService{}, fmt.Errorf("read service etcd of %s: %w", address, err)
	}
	if len(info) == 0 {
		return etcdService{}, fmt.Errorf("read service etcd of %s: there is none", address)
	}
	s := etcdService{state: info[0].Service.GetState()}
	if s.state != etcdPreparing {
		return s, nil
	}
	if s.empty, err = isEmpty(ctx, c, etcdData); err != nil {
		return s, fmt.Errorf("list %s of %s: %w", etcdData, address, err)
	}
	if s.boot, err = readFile(ctx, c, bootIDFile); err != nil {
		return s, fmt.Errorf("read the boot ID of %s: %w", address, err)
	}
	return s, nil
}

// isEmpty reports whether a folder of a node has no entries.
func isEmpty(ctx context.Context, c *client.Client, folder string) (bool, error) {
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

// longestFile bounds what is read of a node's file.
const longestFile = 4096

// readFile reads a small text file of a node.
func readFile(ctx context.Context, c *client.Client, path string) (string, error) {
	from, err := c.Read(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	text, err := io.ReadAll(io.LimitReader(from, longestFile))
	return strings.TrimSpace(string(text)), err
}

// Package nodeprobe dials the nodes and endpoints of clusters, and finds out which
// clusters have to be reconciled because an address has stopped or begun to answer. A dial
// costs a TLS handshake and wakes no function. A TCP handshake alone proves nothing: the kernel
// of a node completes it for a process that hangs.
package nodeprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Cluster is what is dialled of a cluster.
type Cluster struct {
	UID string
	// Ready is whether the cluster's own status says that all is well.
	Ready bool
	// Addresses are pairs of host and port.
	Addresses []string
	// Stopped are the addresses whose Machine does not run, so that their silence shows nothing.
	Stopped map[string]bool
}

const (
	// dialTimeout bounds one dial with its TLS handshake.
	dialTimeout = 3 * time.Second
	// maxDials bounds the dials at the same time.
	maxDials = 64
	// failuresToReport is how many dials in a row have to fail, so that a lost packet or a
	// node that restarts its API wakes no function.
	failuresToReport = 2
	// A cluster that is Ready although an address is silent is reconciled again after
	// firstPause, and then after pauses that double up to longestPause: Kubernetes itself
	// takes most of a minute to call a node NotReady.
	firstPause   = 30 * time.Second
	longestPause = 10 * time.Minute
)

// Prober remembers which addresses have answered. Use one Prober for all rounds.
type Prober struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	targets map[target]history
}

// target is an address of a cluster.
type target struct{ uid, address string }

// New returns a Prober that connects by dial.
func New(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Prober {
	return &Prober{dial: dial, targets: map[target]history{}}
}

// Round dials each address once and returns the UIDs of the clusters to reconcile. It
// forgets the addresses that are not in clusters. Rounds must not overlap.
func (p *Prober) Round(ctx context.Context, now time.Time, clusters []Cluster) map[string]bool {
	answers := p.dialAll(ctx, clusters)
	if ctx.Err() != nil {
		return nil
	}
	next, due := make(map[target]history, len(answers)), map[string]bool{}
	for _, c := range clusters {
		for _, address := range c.Addresses {
			t := target{c.UID, address}
			h, reconcile := p.targets[t].observe(now, answers[t], c.Ready)
			next[t] = h
			if reconcile {
				due[c.UID] = true
			}
		}
	}
	p.targets = next
	return due
}

func (p *Prober) dialAll(ctx context.Context, clusters []Cluster) map[target]bool {
	answers := map[target]bool{}
	slots := make(chan struct{}, maxDials)
	var mu sync.Mutex
	var dialling sync.WaitGroup
	for _, c := range clusters {
		for _, address := range c.Addresses {
			slots <- struct{}{}
			dialling.Go(func() {
				defer func() { <-slots }()
				answered := p.answers(ctx, address)
				mu.Lock()
				defer mu.Unlock()
				answers[target{c.UID, address}] = answered
			})
		}
	}
	dialling.Wait()
	return answers
}

func (p *Prober) answers(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := p.dial(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	// Nothing is read or written through this connection, so its certificate proves nothing and is not verified.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // see above
	return err == nil || isResponse(err)
}

// isResponse reports whether an error of a handshake is what the server has answered: an alert, or a text that is not TLS.
func isResponse(err error) bool {
	var op *net.OpError
	return errors.As(err, new(tls.RecordHeaderError)) || (errors.As(err, &op) && op.Op == "remote error")
}

// Reachability returns what the last round has shown of the addresses of each cluster, by UID. A cluster without an address that has ever
// answered is left out, because its addresses may be out of the gateway's reach.
func (p *Prober) Reachability(clusters []Cluster) map[string]inventory.NodeReachability {
	all := map[string]inventory.NodeReachability{}
	for _, c := range clusters {
		var r inventory.NodeReachability
		for _, address := range c.Addresses {
			h, known := p.targets[target{c.UID, address}]
			if !known || !h.answered {
				continue
			}
			if h.seen.After(r.LastSeen) {
				r.LastSeen = h.seen
			}
			switch {
			case h.failures < failuresToReport:
				r.Answering++
			case !c.Stopped[address]:
				r.Silent++
			}
		}
		if !r.LastSeen.IsZero() {
			all[c.UID] = r
		}
	}
	return all
}

// history is what earlier rounds have seen of an address.
type history struct {
	// answered is whether the address has ever answered. One that never has may be out of
	// the gateway's reach.
	answered bool
	// seen is when it last answered.
	seen     time.Time
	failures int
	pause    time.Duration
	nextAt   time.Time
}

// observe adds a dial to the history, and decides whether the cluster has to be reconciled:
//
//	answers, was silent                              yes
//	answers                                          no
//	has never answered                               no
//	silent for the second time in a row              yes
//	silent since, cluster Ready, pause is over       yes
//	silent                                           no
func (h history) observe(now time.Time, answers, ready bool) (after history, reconcile bool) {
	if answers {
		return history{answered: true, seen: now}, h.failures >= failuresToReport
	}
	if !h.answered {
		return h, false
	}
	h.failures++
	switch {
	case h.failures == failuresToReport:
		h.pause = firstPause
	case h.failures > failuresToReport && ready && !now.Before(h.nextAt):
		h.pause = min(2*h.pause, longestPause)
	default:
		return h, false
	}
	h.nextAt = now.Add(h.pause)
	return h, true
}

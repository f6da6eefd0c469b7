package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vitistack/stack/functions/internal/wire"
)

// standing is where one Kea server stands in a delivery: what it has, or why it
// cannot be asked any more.
type standing struct {
	control *control
	server  server
	view    view
	err     error
}

// peers are the Kea servers of a delivery, the primary one first.
type peers []*standing

// meet connects to all servers, and looks at each of them, at the same time.
func meet(ctx context.Context, controls []*control, look func(context.Context, server) (view, error)) peers {
	all := make(peers, len(controls))
	for i, c := range controls {
		all[i] = &standing{control: c}
	}
	all.each(func(s *standing) {
		if s.server, s.err = connect(ctx, s.control); s.err == nil {
			s.view, s.err = look(ctx, s.server)
		}
	})
	return all
}

// look looks again at the servers that are up.
func (p peers) look(ctx context.Context, look func(context.Context, server) (view, error)) {
	p.up().each(func(s *standing) { s.view, s.err = look(ctx, s.server) })
}

func (p peers) each(f func(*standing)) {
	var wait sync.WaitGroup
	for _, s := range p {
		wait.Go(func() { f(s) })
	}
	wait.Wait()
}

// up are the servers that have answered so far.
func (p peers) up() peers {
	return slices.DeleteFunc(slices.Clone(p), func(s *standing) bool { return s.err != nil })
}

// down are those that have not.
func (p peers) down() peers {
	return slices.DeleteFunc(slices.Clone(p), func(s *standing) bool { return s.err == nil })
}

func (p peers) views() []view {
	views := make([]view, len(p))
	for i, s := range p {
		views[i] = s.view
	}
	return views
}

// exclusive tells whether any of the servers must be changed under the lock.
func (p peers) exclusive() bool {
	return slices.ContainsFunc(p, func(s *standing) bool { return s.server.Exclusive() })
}

// verdict is an error of a server that is no failure of it: its subnets or its
// reservations do not allow what is wished, or it was changed meanwhile.
func (p peers) verdict() error {
	for _, s := range p {
		if errors.As(s.err, new(refusal)) || errors.Is(s.err, errMoved) {
			return s.err
		}
	}
	return nil
}

// outage is what is told about servers that are down.
func (p peers) outage() outage {
	var all outage
	for _, s := range p.down() {
		all = append(all, faultOf(s.err))
	}
	return all
}

// outage is that no server, or not every server that has to, can do its part.
type outage []fault

func (o outage) Error() string {
	text := ""
	for i, f := range o {
		if i > 0 {
			text += "; "
		}
		text += f.message
	}
	return text
}

// reason is the one of the first server that is not mended by waiting, or else of
// the first one.
func (o outage) reason() string {
	for _, f := range o {
		if !f.transient {
			return f.reason
		}
	}
	return o[0].reason
}

// transient tells whether waiting may mend one of them.
func (o outage) transient() bool {
	return slices.ContainsFunc(o, func(f fault) bool { return f.transient })
}

// fault is what is told about a server that cannot do its part.
type fault struct {
	reason, message string
	// transient is whether it may mend itself.
	transient bool
}

// faultOf tells what to do about an error of a server:
//
//	refused, timeout, 408, 429, 5xx, DHCP server offline   KeaUnavailable       wait
//	401, 403                                               KeaUnauthorized      change credentials
//	certificate of either side                             KeaUntrusted         change certificates
//	a server that ALLOWED_ENDPOINTS leaves out             KeaNotAllowed        change the list, or the URL
//	404, other 3xx and 4xx, not JSON, not Kea's JSON       KeaUnexpectedAnswer  change the URL
//	result 2 for a command that is needed                  KeaUnsupported       load hooks
//	any other result of config-write                       KeaNotPersisted      let Kea write its file
//	any other result                                       KeaRefused           see Kea's words
func faultOf(err error) fault {
	var e *wire.Error
	var no refused
	text := err.Error()
	switch {
	case errors.As(err, new(offline)):
		return fault{"KeaUnavailable", text + ": start kea-dhcp4", true}
	case errors.As(err, new(unsupported)):
		return fault{"KeaUnsupported", fmt.Sprintf(
			"%s: load libdhcp_host_cmds.so and libdhcp_subnet_cmds.so, or allow config-get, config-test, config-set and config-write", text), false}
	case errors.As(err, &no) && no.command == "config-write":
		return fault{"KeaNotPersisted", text + ": let the user that Kea runs as write its configuration file and the folder of it", false}
	case errors.As(err, &no):
		return fault{"KeaRefused", text, false}
	case !errors.As(err, &e):
		return fault{"KeaUnexpectedAnswer", text + urlAdvice, false}
	case e.Transient():
		return fault{"KeaUnavailable", text, true}
	case e.Kind == wire.Unauthorized:
		return fault{"KeaUnauthorized", text + ": set KEA_BASIC_AUTH_USERNAME and KEA_BASIC_AUTH_PASSWORD, or the client certificate, to ones that the server accepts", false}
	case e.Kind == wire.Untrusted:
		return fault{"KeaUntrusted", text + ": set KEA_TLS_ENABLED to true, and KEA_TLS_CA_FILE, KEA_TLS_CERT_FILE and KEA_TLS_KEY_FILE, or KEA_TLS_SECRET_NAME, to certificates that both sides trust", false}
	case e.Kind == wire.NotAllowed:
		return fault{"KeaNotAllowed", text, false}
	default:
		return fault{"KeaUnexpectedAnswer", text + urlAdvice, false}
	}
}

const urlAdvice = ": set KEA_URL and KEA_SECONDARY_URL to Kea's control agent, or to a control socket of type http"

// looker looks at the subnet of a network.
func looker(network netip.Prefix, leases bool) func(context.Context, server) (view, error) {
	return func(ctx context.Context, s server) (view, error) { return s.Look(ctx, network, leases) }
}

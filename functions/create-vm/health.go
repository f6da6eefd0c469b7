package main

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// recordHealth publishes what a call of the hypervisor of a MachineProvider has shown. If that is news, it also brings the
// status of the MachineProvider up to date, which a round of resync does otherwise.
func (r providerReconciler) recordHealth(ctx context.Context, p *v1alpha1.MachineProvider, began time.Time, err error) {
	found, ok := findingOf(began, time.Now(), err)
	if !ok || !r.reporter.Record(ctx, string(p.Spec.Type), p.Name, found) {
		return
	}
	if err == nil {
		_ = kube.OnConflict(func() error { return r.reconcile(ctx, p.Name, causeResync) }) // resync does it otherwise
		return
	}
	before := p.DeepCopy()
	_, _ = reconcile.PatchStatus(ctx, r.kube, before, p, string(p.Status.Phase), setProviderStatus(p, hypervisor.Health{}, p.Status.MachineCount, err))
}

// findingOf returns what the error of a call shows of the hypervisor:
//
//	nil                                 healthy
//	a UserError of an outage            what its reason says: the credentials or the certificate are wrong
//	no connection, a timeout            unreachable
//	any other                           nothing: the hypervisor or the API server has refused a request
func findingOf(began, ended time.Time, err error) (backendhealth.Finding, bool) {
	if err == nil {
		return backendhealth.Healthy(began, ended), true
	}
	if problem, ok := asUserError(err); ok {
		return backendhealth.FindingOf(problem.Reason, problem.Message, began, ended)
	}
	if isSilence(err) {
		return backendhealth.FindingOf(reasonUnreachable, unreachableMessage(err), began, ended)
	}
	return backendhealth.Finding{}, false
}

// isSilence reports whether an error says that a server has not answered a request.
func isSilence(err error) bool {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return true
	}
	return errors.As(err, new(*net.OpError)) || errors.As(err, new(*net.DNSError)) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

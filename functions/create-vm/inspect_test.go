package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// slowHypervisor answers from the third request on.
type slowHypervisor struct {
	hypervisor.Interface
	err   error
	looks int
}

// Inspect implements hypervisor.
func (l *slowHypervisor) Inspect(context.Context) (hypervisor.Health, error) {
	if l.looks++; l.looks < 3 {
		return hypervisor.Health{}, l.err
	}
	return hypervisor.Health{Version: "1"}, nil
}

func TestInspectDuringInstallation(t *testing.T) {
	t.Parallel()
	missing, wrong := hypervisor.NotInstalledError{UserError: reconcile.UserError{Reason: "NotInstalled", Message: "install it"}}, reconcile.UserError{Reason: "CredentialsInvalid", Message: "write others"}
	cases := map[string]struct {
		reason string
		phase  v1alpha1.ProviderPhase
		err    error
		looks  int
	}{
		"Installing": {reason: "KubeVirt may be in the middle of its installation", err: missing, looks: 3},
		"Starting":   {reason: "the backend may be starting", err: errors.New("connection refused"), looks: 3},
		"Mistaken":   {reason: "only a user can fix the cause", err: wrong, looks: 1},
		"Known":      {reason: "a provider that was Ready before is not waited for", phase: v1alpha1.ProviderReady, err: missing, looks: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := &slowHypervisor{err: tc.err}
			f := providerReconciler{installTimeout: time.Minute, connect: func(context.Context, *v1alpha1.MachineProvider) (hypervisor.Interface, error) { return backend, nil }}
			p := &v1alpha1.MachineProvider{Status: v1alpha1.MachineProviderStatus{Phase: tc.phase}}
			_, err := f.inspect(t.Context(), p)
			if backend.looks != tc.looks || (err == nil) != (tc.looks == 3) {
				t.Errorf("%s: %d requests end in %v, want %d", tc.reason, backend.looks, err, tc.looks)
			}
		})
	}
}

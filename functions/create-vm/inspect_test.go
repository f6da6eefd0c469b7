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

// late is a hypervisor that answers from the third look on.
type late struct {
	hypervisor.Interface
	err   error
	looks int
}

// Inspect implements hypervisor.
func (l *late) Inspect(context.Context) (hypervisor.Health, error) {
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
		"Installing": {reason: "it may be installed at this moment", err: missing, looks: 3},
		"Starting":   {reason: "it may come up at this moment", err: errors.New("connection refused"), looks: 3},
		"Mistaken":   {reason: "somebody has to change something", err: wrong, looks: 1},
		"Known":      {reason: "it has been there before", phase: v1alpha1.ProviderReady, err: missing, looks: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := &late{err: tc.err}
			f := &function{installTimeout: time.Minute, connect: func(context.Context, *v1alpha1.MachineProvider) (hypervisor.Interface, error) { return backend, nil }}
			p := &v1alpha1.MachineProvider{Status: v1alpha1.MachineProviderStatus{Phase: tc.phase}}
			_, err := f.inspect(t.Context(), p)
			if backend.looks != tc.looks || (err == nil) != (tc.looks == 3) {
				t.Errorf("%s: %d looks end in %v, want %d", tc.reason, backend.looks, err, tc.looks)
			}
		})
	}
}

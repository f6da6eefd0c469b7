package talos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/stack/tests/sim/talos"
)

// TestWrongClock has a machine whose clock, and so whose certificates, are a day behind.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	r.up(2)
	m := r.machine(2)
	for _, skew := range []time.Duration{-48 * time.Hour, 0} {
		m.Skew = skew
		if err := r.fleet.PowerOn(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r.eventually("clients check the certificate with the right time", func(ctx context.Context) error {
			got, err := r.client(2).TimeClient.Time(ctx, &emptypb.Empty{})
			switch {
			case skew != 0 && (err == nil || !strings.Contains(err.Error(), "expired or is not yet valid")):
				return fmt.Errorf("an expired certificate is accepted, or the error has another cause: %w", err)
			case skew != 0:
				return nil
			case err != nil:
				return err
			}
			off := got.Messages[0].Localtime.AsTime().Sub(got.Messages[0].Remotetime.AsTime())
			if off.Abs() > time.Minute {
				return errors.New("the clock is still wrong")
			}
			return nil
		})
	}
}

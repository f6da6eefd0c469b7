package talos_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/vitistack/stack/tests/sim/talos"
)

// buffer is a log that several goroutines write.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

// console returns all logs of a machine that readers may see.
func console(t *testing.T, c *client.Client) string {
	t.Helper()
	dmesg, err := c.Dmesg(t.Context(), false, false)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for {
		line, err := dmesg.Recv()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Write(line.Bytes)
	}
}

func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	_ = r.fleet.Close()
	log := &buffer{}
	f, err := talos.Open(r.dir, r.plan, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	r.fleet = f
	t.Cleanup(func() { _ = f.Close() })
	c := r.cluster(1, 1)
	// Failures are where secrets may leak.
	r.powerOn(9)
	broken := bytes.Replace(r.config(machine.TypeControlPlane), []byte("machine:\n"), []byte("machine:\n    colour: red\n"), 1)
	r.eventually("an invalid configuration is rejected", func(ctx context.Context) error {
		if _, err := r.insecure(9).Disks(ctx); err != nil {
			return err
		}
		_, err := r.insecure(9).ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: broken})
		if err == nil {
			t.Error("an unknown key was accepted")
		}
		return nil
	})
	r.apply(9, r.config(machine.TypeControlPlane, "machine:\n  install:\n    image: nowhere\n"))
	r.eventually("the failed installation is reported", func(context.Context) error {
		if !strings.Contains(log.text(), "nowhere") {
			return errors.New("it is not reported")
		}
		return nil
	})
	if err := c.Reset(t.Context(), true, true); err != nil { // the last member cannot leave
		t.Fatal(err)
	}
	r.nodesReady(2)
	all := log.text() + console(t, c)
	b := r.bundle
	for name, secret := range map[string]string{
		"machine token":   b.TrustdInfo.Token,
		"bootstrap token": b.Secrets.BootstrapToken,
		"cluster secret":  b.Cluster.Secret,
		"secretbox":       b.Secrets.SecretboxEncryptionSecret,
		"OS key":          base64.StdEncoding.EncodeToString(b.Certs.OS.Key),
		"Kubernetes key":  base64.StdEncoding.EncodeToString(b.Certs.K8s.Key),
		"a PEM key":       "PRIVATE KEY",
	} {
		if secret != "" && strings.Contains(all, secret) {
			t.Errorf("the %s is in the logs", name)
		}
	}
}

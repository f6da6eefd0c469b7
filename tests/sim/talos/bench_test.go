package talos_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/vitistack/stack/tests/sim/talos"
)

// otherCluster returns the bundle of another cluster, without a service account key, whose generation
// takes a second.
func otherCluster(b *testing.B, like *secrets.Bundle) *secrets.Bundle {
	b.Helper()
	bundle, certs := *like, *like.Certs
	system, err := secrets.NewTalosCA(time.Now())
	if err != nil {
		b.Fatal(err)
	}
	kubernetes, err := secrets.NewKubernetesCA(time.Now(), config.TalosVersion1_13)
	if err != nil {
		b.Fatal(err)
	}
	certs.OS = &x509.PEMEncodedCertificateAndKey{Crt: system.CrtPEM, Key: system.KeyPEM}
	certs.K8s = &x509.PEMEncodedCertificateAndKey{Crt: kubernetes.CrtPEM, Key: kubernetes.KeyPEM}
	bundle.Certs = &certs
	return &bundle
}

// BenchmarkClusters starts clusters of three control planes in one process, each in a range of its
// own, and reports their costs when they are idle.
func BenchmarkClusters(b *testing.B) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	racks := make([]*rack, 0, b.N)
	for b.Loop() {
		r := newRack(b, "v1.13.9", talos.Timing{})
		r.bundle = otherCluster(b, r.bundle)
		for n := 2; n < 5; n++ {
			r.powerOn(n)
			r.apply(n, r.config(machine.TypeControlPlane, r.hostname(fmt.Sprintf("cp-%d", n))))
		}
		r.bootstrap(r.up(2))
		r.nodesReady(3)
		racks = append(racks, r)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	nodes := float64(3 * len(racks))
	b.ReportMetric(float64(after.HeapInuse-before.HeapInuse)/nodes/1024, "KiB/node")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/nodes, "goroutines/node")
}

// Package bench measures the stack. Its results are counts and ratios where possible, and no benchmark
// fails because of a duration.
package bench

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
)

// kubeconfig returns the path of a valid kubeconfig. No server listens at its address.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`

// BenchmarkColdStart measures the time from the start of a function's program to its first answer.
// x-floor is the ratio to an empty Go HTTP server that is started alternately.
func BenchmarkColdStart(b *testing.B) {
	engine.Build(b)
	dir := b.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(config, []byte(kubeconfig), 0o600); err != nil {
		b.Fatal(err)
	}
	floor := filepath.Join(dir, "floor")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", floor, "./floor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build the floor: %v\n%s", err, out)
	}
	env := append(os.Environ(), "KUBECONFIG="+config, "K_SINK=http://127.0.0.1:1", "KEA_URL=http://127.0.0.1:1")
	for _, name := range []string{"provision-network", "allocate-ip", "kea-reserve", "create-vm", "bootstrap-talos", "etcd-backup", "resync"} {
		b.Run(name, func(b *testing.B) {
			program := filepath.Join(engine.Bin(b), name)
			var walls, floors, cpus []time.Duration
			for b.Loop() {
				wall, cpu := start(b, program, env)
				least, _ := start(b, floor, env)
				walls, cpus, floors = append(walls, wall), append(cpus, cpu), append(floors, least)
			}
			info, err := os.Stat(program)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(milliseconds(median(walls)), "ms-start")
			b.ReportMetric(milliseconds(median(cpus)), "ms-cpu")
			b.ReportMetric(float64(median(walls))/float64(median(floors)), "x-floor")
			b.ReportMetric(float64(info.Size())/1e6, "MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// start runs a server until its first answer, and returns the time and the CPU time for that.
func start(b *testing.B, program string, env []string) (wall, cpu time.Duration) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	command := exec.CommandContext(b.Context(), program)
	command.Env = append(slices.Clone(env), "PORT="+strconv.Itoa(port))
	began := time.Now()
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	awaitAnswer(b, fmt.Sprintf("http://127.0.0.1:%d/readyz", port))
	wall = time.Since(began)
	_ = command.Process.Signal(syscall.SIGKILL)
	_ = command.Wait()
	return wall, command.ProcessState.UserTime() + command.ProcessState.SystemTime()
}

func awaitAnswer(b *testing.B, url string) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.Now().Add(10 * time.Second)
	for {
		res, err := client.Get(url)
		if err == nil {
			_ = res.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Package judge starts KubeVirt's own webhooks for tests.
package judge

import (
	"sync"
	"testing"

	"github.com/vitistack/stack/tests/sim/kubevirt/judge"
)

var start = sync.OnceValues(func() (*judge.Judge, error) {
	program, err := judge.Program()
	if err != nil {
		return nil, err
	}
	return judge.Start(program)
})

// Start returns KubeVirt's webhooks, which all tests of a package share. They end with the process of the tests.
func Start(t testing.TB) *judge.Judge {
	t.Helper()
	j, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

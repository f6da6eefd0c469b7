package kubevirt

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/sim/faults"
)

// errFault is a planned fault, in contrast to a failure of the simulator.
var errFault = errors.New("injected fault")

// pace makes steps take time and fail as planned, without a goroutine or a write. A restart of the
// simulator restarts the time of a step.
type pace struct {
	plan *faults.Plan

	mu    sync.Mutex
	steps map[step]deadline
}

// step is one operation on one object.
type step struct {
	of        types.UID
	operation string
}

type deadline struct {
	due   time.Time
	fault faults.Fault
}

func newPace(plan *faults.Plan) *pace {
	return &pace{plan: plan, steps: map[step]deadline{}}
}

// wait asks the plan for the fault of a step at its first call, and returns how much of the step's
// time is left, including the fault's latency. At zero the caller performs the step with the fault and
// calls done. Until then the plan is not asked again.
func (p *pace) wait(s step, duration time.Duration) (left time.Duration, fault faults.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	d, begun := p.steps[s]
	if !begun {
		d.fault = p.ask(s.operation)
		d.due = now.Add(duration + d.fault.Latency)
		p.steps[s] = d
	}
	return max(0, d.due.Sub(now)), d.fault
}

// ask asks the plan about an operation. An operation with an object in a third part, such as
// "dv/import/images.example", is also asked about without it.
func (p *pace) ask(operation string) faults.Fault {
	fault := p.plan.Next(operation)
	parts := strings.SplitN(operation, "/", 3)
	if fault != (faults.Fault{}) || len(parts) < 3 {
		return fault
	}
	return p.plan.Next(parts[0] + "/" + parts[1])
}

// done forgets a step, so that its next call starts again.
func (p *pace) done(s step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.steps, s)
}

// forget drops all steps of a deleted object.
func (p *pace) forget(of types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.steps {
		if s.of == of {
			delete(p.steps, s)
		}
	}
}

// injected returns the error of a fault.
func injected(operation, text string) error {
	return fmt.Errorf("%s: %w: %s", operation, errFault, text)
}

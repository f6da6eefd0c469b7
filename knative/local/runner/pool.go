package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/stack/knative/local/process"
)

// acquire returns a process with room for one more request, which must be released. It starts processes if necessary, and waits for room until ctx ends.
func (f *Function) acquire(ctx context.Context) (*instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting++
	defer func() { f.waiting-- }()
	for {
		if f.closed {
			return nil, fmt.Errorf("%s is stopped", f.spec.Name)
		}
		if in := f.free(); in != nil {
			in.take()
			return in, nil
		}
		if err := f.grow(); err != nil {
			return nil, err
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if err := context.Cause(ctx); err != nil {
			return nil, fmt.Errorf("wait for a process of %s: %w", f.spec.Name, err)
		}
	}
}

// release returns a process to the pool.
func (f *Function) release(in *instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in.inFlight--
	if in.inFlight == 0 {
		f.rest(in)
	}
	f.wake()
}

// free returns the ready process with the fewest requests, or nil if all are full.
func (f *Function) free() *instance {
	var best *instance
	for _, in := range f.instances {
		if in.state == process.StateReady && !in.retired && (best == nil || in.inFlight < best.inFlight) {
			best = in
		}
	}
	if best == nil || best.inFlight < f.capacity() {
		return best
	}
	if f.spec.Concurrency == 0 && f.active() >= f.spec.Processes {
		return best // the target is soft, the number of processes is not
	}
	return nil
}

// grow starts a process if there are too few starting processes for the waiting requests. It returns an error if no process runs, and the next start is
// delayed after crashes.
func (f *Function) grow() error {
	starting := 0
	for _, in := range f.instances {
		if in.state == process.StateStarting {
			starting++
		}
	}
	if f.active() >= f.spec.Processes || f.waiting <= starting*f.capacity() {
		return nil
	}
	if wait := time.Until(f.notBefore); wait > 0 {
		if f.active() > 0 {
			return nil
		}
		return fmt.Errorf("%s does not stay up (%w); see %s", f.spec.Name, f.lastErr, f.log.Path())
	}
	f.start()
	return nil
}

// active returns the number of processes that get requests, or will.
func (f *Function) active() int {
	n := 0
	for _, in := range f.instances {
		if in.state != process.StateStopping && !in.retired {
			n++
		}
	}
	return n
}

func (f *Function) capacity() int {
	if f.spec.Concurrency > 0 {
		return f.spec.Concurrency
	}
	return defaultTarget
}

// rest is called when a process has no request: it is stopped now if it is retired, and otherwise after the idle time.
func (f *Function) rest(in *instance) {
	if in.state != process.StateReady {
		return
	}
	if in.retired {
		f.stop(in)
		return
	}
	in.idle = time.AfterFunc(f.spec.Idle, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if in.inFlight == 0 && in.state == process.StateReady {
			f.stop(in)
		}
	})
}

// failed records that a process ended by itself, and delays the next start after two failures in a
// row.
func (f *Function) failed(err error) {
	if err == nil {
		err = errors.New("exit status 0")
	}
	f.lastErr = err
	f.crashes++
	if f.crashes > 1 {
		f.notBefore = time.Now().Add(min(firstBackoff<<min(f.crashes-2, 10), lastBackoff))
	}
}

// wake makes all waiting requests check again.
func (f *Function) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

package runner

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// RoundTrip implements http.RoundTripper. It sends the request to a process of the function, whatever its host. It returns an error only if the
// request's own context ends: a missing process is a response too. The process is in use until the response's body is closed.
func (f *Function) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), f.spec.Timeout)
	ctx, started := f.untilStarted(ctx)
	in, err := f.acquire(ctx)
	if err != nil {
		started()
		cancel()
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return refusal(r, err)
	}
	done := func() {
		f.release(in)
		cancel()
	}
	out := r.WithContext(ctx)
	target := *r.URL
	out.URL, out.Host = &target, ""
	target.Host = local(in.port).Host
	response, err := f.transport.RoundTrip(out)
	started()
	if err != nil {
		done()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return refusal(r, fmt.Errorf("call %s: %w", f.spec.Name, err))
	}
	f.answered()
	response.Body = &heldBody{ReadCloser: response.Body, done: sync.OnceFunc(done)}
	return response, nil
}

// untilStarted returns a context that ends when an answer has not begun in time. started lifts the limit.
func (f *Function) untilStarted(ctx context.Context) (limited context.Context, started func()) {
	if f.spec.ResponseStart == 0 {
		return ctx, func() {}
	}
	limited, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(f.spec.ResponseStart, func() { cancel(context.DeadlineExceeded) })
	return limited, func() { timer.Stop() }
}

// heldBody is the body of a response from a process that is in use until it is closed.
type heldBody struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// refusal returns the response for an error, or the error of the request's own context.
func refusal(r *http.Request, err error) (*http.Response, error) {
	if r.Context().Err() != nil {
		return nil, err
	}
	code, text := status(err), err.Error()+"\n"
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}},
		Request: r, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}

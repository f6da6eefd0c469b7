package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"k8s.io/client-go/rest"
	"knative.dev/pkg/network/handlers"
	"knative.dev/pkg/signals"

	"github.com/vitistack/stack/events/restconfig"
	"github.com/vitistack/stack/events/triggerauth"
)

// Handler handles one event. It is called concurrently, and more than once with the same
// event, so it keeps no state between calls. It is called once for waiting events that require
// the same for an object. An event that Handler returns is sent to the Broker as the reply.
// Permanent documents its errors.
type Handler func(ctx context.Context, in event.Event) (*event.Event, error)

// Run is the main function of a program: it serves the handler that build returns until
// SIGTERM or SIGINT, and then ends the process. It calls build once, before it serves. An
// error of build is logged, and the process exits with 1.
//
// Environment variables, with their defaults: PORT (8080) is the port to listen on, SERVER_HOST (every address) the address,
// LOG_LEVEL (info) the least level that is logged, and METRICS_PUSH_URL (none) the URL of
// the gateway for metrics. If OIDC_ENABLED (false) is true, each delivery needs a token for
// OIDC_AUDIENCE of one of OIDC_SUBJECTS.
func Run(name string, build func() (Handler, error), options ...Option) {
	log := NewLogger(os.Stderr, os.Getenv("LOG_LEVEL"))
	if err := run(signals.NewContext(), name, build, log, options...); err != nil {
		log.Error("Cannot run", "function", name, "error", err.Error())
		os.Exit(1)
	}
}

// Option changes how a function is served.
type Option func(*receiver)

// WithTimeout sets the timeout of a delivery. The timeouts of the Trigger and of the Service
// of the function have to be longer.
func WithTimeout(d time.Duration) Option { return func(r *receiver) { r.timeout = d } }

// WithVerifier refuses deliveries that v does not verify. A nil v accepts all.
func WithVerifier(v *triggerauth.Verifier) Option { return func(r *receiver) { r.verifier = v } }

// WithConcurrent has deliveries about objects of some kinds handled concurrently, because the handler
// serializes them itself.
func WithConcurrent(kinds ...string) Option { return func(r *receiver) { r.concurrent = kinds } }

// pushTo pushes metrics to a URL after each pause in which something was counted.
func pushTo(url string, pause time.Duration) Option {
	return func(r *receiver) { r.push.url, r.push.pause = url, pause }
}

func run(ctx context.Context, name string, build func() (Handler, error), log *slog.Logger, options ...Option) error {
	verifier, err := newVerifier(name)
	if err != nil {
		return err
	}
	handle, err := build()
	if err != nil {
		return err
	}
	listener, err := listen(ctx, os.Getenv("SERVER_HOST"), os.Getenv("PORT"))
	if err != nil {
		return err
	}
	options = append(options, pushTo(os.Getenv("METRICS_PUSH_URL"), pushPause), WithVerifier(verifier))
	return Serve(ctx, listener, name, handle, log, options...)
}

// listen opens the port that Knative names in PORT, or 8080, on the host, or on every address if host is empty.
func listen(ctx context.Context, host, port string) (net.Listener, error) {
	if port == "" {
		port = "8080"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listen on SERVER_HOST %q and PORT %s: %w", host, port, err)
	}
	return listener, nil
}

func newVerifier(name string) (*triggerauth.Verifier, error) {
	settings, err := triggerauth.FromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	return triggerauth.New(settings, func() (*rest.Config, error) { return restconfig.Load(name) })
}

// Serve serves handle on the listener until ctx ends, and then waits for the deliveries in
// progress. It accepts events at any path, and also answers /healthz, /readyz and /metrics.
func Serve(ctx context.Context, listener net.Listener, name string, handle Handler, log *slog.Logger, options ...Option) error {
	log = log.With("function", name)
	r := &receiver{name: name, handle: handle, log: log, timeout: deliveryTimeout, push: pusher{log: log}}
	for _, option := range options {
		option(r)
	}
	r.serialized = Serialize(r.call, r.concurrent...)
	metrics.ExposeMetadata(true)
	if r.verifier != nil {
		r.counter(unauthenticated) // exists at 0, because an alert on its increase does not see the first value of a counter
	}
	drainer := &handlers.Drainer{Inner: r.routes(), QuietPeriod: shutdownQuiet}
	server := &http.Server{
		Handler:           drainer,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	drainer.Drain()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout+shutdownExtra)
	defer cancel()
	err := server.Shutdown(stop)
	r.push.end()
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

// receiver turns HTTP requests into calls of a handler.
type receiver struct {
	name   string
	handle Handler
	log    *slog.Logger
	// timeout is the timeout of a delivery.
	timeout time.Duration
	push    pusher
	// verifier verifies deliveries. It is nil if they need no token.
	verifier *triggerauth.Verifier
	// serialized is call, one delivery at a time for each object, except for concurrent kinds.
	serialized Handler
	concurrent []string
}

func (r *receiver) routes() http.Handler {
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", alive)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { metrics.WritePrometheus(w, true) })
	mux.HandleFunc("POST /", r.receive)
	return mux
}

func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	if !r.authenticate(w, req) {
		return
	}
	req.Body = http.MaxBytesReader(w, req.Body, maxEventBytes)
	in, err := Read(req.Context(), req.Header, req.Body)
	if err != nil {
		r.refuse(w, err)
		return
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(req.Context(), r.timeout)
	defer cancel()
	d := &delivery{}
	r.log.LogAttrs(ctx, slog.LevelDebug, "Received event", slog.String("eventType", in.Type()), slog.String("eventId", in.ID()),
		slog.String("source", in.Source()), slog.String("subject", in.Subject()))
	reply, err := r.serialized(context.WithValue(ctx, deliveryKey{}, d), *in)
	if err == nil && reply != nil {
		err = complete(reply, *in, r.name)
	}
	name, status := outcome(err)
	took := time.Since(start)
	r.count(name, took)
	r.logDelivery(*in, d, name, err, took)
	if err != nil {
		http.Error(w, brief(err.Error()), status)
		return
	}
	if reply == nil {
		w.WriteHeader(status)
		return
	}
	if err := cehttp.WriteResponseWriter(ctx, binding.ToMessage(reply), statusReply, w); err != nil {
		r.log.Warn("Cannot send reply", "eventId", in.ID(), "error", err.Error())
	}
}

// call runs the handler. A panic ends this delivery with a permanent error, and does not
// affect other deliveries.
func (r *receiver) call(ctx context.Context, in event.Event) (reply *event.Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Permanent(fmt.Errorf("panic: %v", p))
			r.log.Error("Handler panicked", "eventId", in.ID(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return r.handle(ctx, in)
}

// refuse answers a request without a valid event.
func (r *receiver) refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		status = http.StatusRequestEntityTooLarge
	} else if errors.Is(err, binding.ErrUnknownEncoding) {
		status = http.StatusUnsupportedMediaType
	}
	r.count("refused", 0)
	r.log.Warn("Request is not a CloudEvent", "error", err.Error())
	http.Error(w, brief("send a CloudEvent of version 1.0 in binary or structured mode: "+err.Error()), status)
}

// brief cuts the text of an answer, between two characters, to the size that every broker
// can put into a dead letter.
func brief(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
}

// complete derives the attributes of a reply from its cause, so that a redelivery of the
// cause results in the same reply.
func complete(reply *event.Event, cause event.Event, function string) error {
	if reply.ID() == "" {
		reply.SetID(cause.ID() + "." + function)
	}
	if reply.Source() == "" {
		reply.SetSource("/functions/" + function)
	}
	if reply.Subject() == "" {
		reply.SetSubject(cause.Subject())
	}
	if key := extension(cause, "partitionkey"); key != "" && extension(*reply, "partitionkey") == "" {
		reply.SetExtension("partitionkey", key)
	}
	if err := reply.Validate(); err != nil {
		return Permanent(fmt.Errorf("reply to event %s: %w", cause.ID(), err))
	}
	return nil
}

// counter returns the counter of deliveries with an outcome.
func (r *receiver) counter(outcome string) *metrics.Counter {
	return metrics.GetOrCreateCounter(fmt.Sprintf(`vitistack_function_deliveries_total{function=%q,outcome=%q}`, r.name, outcome))
}

func (r *receiver) count(outcome string, took time.Duration) {
	r.counter(outcome).Inc()
	metrics.GetOrCreatePrometheusHistogram(fmt.Sprintf(`vitistack_function_delivery_duration_seconds{function=%q}`, r.name)).Update(took.Seconds())
	r.push.counted()
}

func (r *receiver) logDelivery(in event.Event, d *delivery, outcome string, err error, took time.Duration) {
	phase, message := d.report()
	if message == "" {
		message = "Delivery " + outcome
	}
	level, kind := slog.LevelInfo, extension(in, "kind")
	attrs := []slog.Attr{
		slog.String("controller", kind), // kind, in the words of the operators that came before
		slog.String("kind", kind),
		slog.String("namespace", extension(in, "namespace")),
		slog.String("name", extension(in, "name")),
		slog.String("phase", phase),
		slog.String("duration", took.Round(10*time.Microsecond).String()),
		slog.String("outcome", outcome),
		slog.Int64("reads", d.reads.Load()),
		slog.Int64("writes", d.writes.Load()),
		slog.String("eventType", in.Type()),
		slog.String("eventId", in.ID()),
	}
	if kind == "Machine" {
		attrs = append(attrs, slog.String("machine", extension(in, "name")))
	}
	if err != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	r.log.LogAttrs(context.Background(), level, message, attrs...)
}

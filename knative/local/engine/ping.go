package engine

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/uuid"
	"github.com/robfig/cron/v3"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
)

const (
	// Retries of a ping that the Broker rejects, as in Knative's adapter.
	pingRetries = 5
	pingBackoff = 50 * time.Millisecond
)

// pingParser accepts the schedules that Knative accepts.
var pingParser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// every is a schedule with a fixed interval, which may be shorter than cron's second.
type every time.Duration

// Next implements cron.Schedule.
func (e every) Next(now time.Time) time.Time { return now.Add(time.Duration(e)) }

// pinger sends the events of a PingSource.
type pinger struct {
	client   cloudevents.Client
	event    cloudevents.Event
	schedule cron.Schedule
	log      *slog.Logger
}

// newPinger compiles a PingSource. interval, if not 0, replaces its schedule.
func newPinger(source *sourcesv1.PingSource, sink *url.URL, interval time.Duration, log *slog.Logger) (*pinger, error) {
	p := &pinger{schedule: every(interval), log: log}
	var err error
	if interval == 0 {
		text := source.Spec.Schedule
		if source.Spec.Timezone != "" {
			text = "CRON_TZ=" + source.Spec.Timezone + " " + text
		}
		if p.schedule, err = pingParser.Parse(text); err != nil {
			return nil, fmt.Errorf("parse the schedule of PingSource %s/%s: %w", source.Namespace, source.Name, err)
		}
	}
	if p.event, err = pingEvent(source); err != nil {
		return nil, fmt.Errorf("build the event of PingSource %s/%s: %w", source.Namespace, source.Name, err)
	}
	if p.client, err = cloudevents.NewClientHTTP(cloudevents.WithTarget(sink.String())); err != nil {
		return nil, fmt.Errorf("build the client of PingSource %s/%s: %w", source.Namespace, source.Name, err)
	}
	return p, nil
}

// pingEvent returns the event without ID and time, as Knative's adapter creates it.
func pingEvent(source *sourcesv1.PingSource) (cloudevents.Event, error) {
	e := cloudevents.NewEvent()
	e.SetType(sourcesv1.PingSourceEventType)
	e.SetSource(sourcesv1.PingSourceSource(source.Namespace, source.Name))
	if overrides := source.Spec.CloudEventOverrides; overrides != nil {
		for name, value := range overrides.Extensions {
			e.SetExtension(name, value)
		}
	}
	data := []byte(source.Spec.Data)
	if source.Spec.DataBase64 != "" {
		var err error
		if data, err = base64.StdEncoding.DecodeString(source.Spec.DataBase64); err != nil {
			return e, fmt.Errorf("decode dataBase64: %w", err)
		}
	}
	if len(data) == 0 {
		return e, nil
	}
	contentType := source.Spec.ContentType
	if contentType == "" {
		contentType = cloudevents.ApplicationJSON
	}
	return e, e.SetData(contentType, data)
}

// run sends one event at once, because an ApiServerSource sends no events about existing objects, and then one at each time of the schedule until ctx
// ends.
func (p *pinger) run(ctx context.Context) {
	for {
		p.send(ctx)
		timer := time.NewTimer(time.Until(p.schedule.Next(time.Now())))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (p *pinger) send(ctx context.Context) {
	e := p.event.Clone()
	e.SetID(uuid.NewString())
	e.SetTime(time.Now())
	ctx = cloudevents.ContextWithRetriesExponentialBackoff(ctx, pingBackoff, pingRetries)
	if result := p.client.Send(ctx, e); !cloudevents.IsACK(result) && ctx.Err() == nil {
		p.log.Error("ping lost", "source", e.Source(), "error", result)
	}
}

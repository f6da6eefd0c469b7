package main

import (
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Metrics of full rounds. They are points in time rather than ages, because a function that has
// scaled to zero pushes nothing.
const (
	metricRoundStart    = "vitistack_resync_round_start_timestamp_seconds"
	metricRoundPages    = "vitistack_resync_round_pages"
	metricRoundObjects  = "vitistack_resync_round_objects"
	metricLastCompleted = "vitistack_resync_last_completed_timestamp_seconds"
	metricLastDuration  = "vitistack_resync_last_duration_seconds"
)

// reportProgress sets the metrics of a full round that continues.
func reportProgress(r record) {
	setGauge(metricRoundStart, seconds(r.started))
	setGauge(metricRoundPages, float64(r.progress.Pages))
	setGauge(metricRoundObjects, float64(r.progress.Objects))
}

// reportComplete sets the metrics of a full round that has completed.
func reportComplete(r record, completed time.Time) {
	reportProgress(r)
	setGauge(metricRoundStart, 0)
	setGauge(metricLastCompleted, seconds(completed))
	setGauge(metricLastDuration, completed.Sub(r.started).Seconds())
}

func setGauge(name string, value float64) { metrics.GetOrCreateGauge(name, nil).Set(value) }

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

package kea

import (
	"errors"
	"fmt"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/functions/internal/httpclient"
)

// observe counts one command by its duration and its error.
func observe(role, command string, err error, took time.Duration) {
	metrics.GetOrCreatePrometheusHistogram(fmt.Sprintf(
		`kea_operator_dhcp_operation_duration_seconds{operation=%q,server=%q}`, command, role)).Update(took.Seconds())
	if kind := errorKind(err); kind != "" {
		metrics.GetOrCreateCounter(fmt.Sprintf(
			`kea_operator_errors_total{operation=%q,server=%q,error_type=%q}`, command, role, kind)).Inc()
	}
}

func errorKind(err error) string {
	var e *httpclient.Error
	switch {
	case err == nil, isEmpty(err):
		return ""
	case errors.As(err, &e):
		return string(e.Kind)
	case errors.As(err, new(offlineError)):
		return string(httpclient.Unreachable)
	case errors.As(err, new(CommandError)):
		return "Refused"
	case errors.As(err, new(unsupportedError)):
		return "Unsupported"
	default:
		return string(httpclient.Malformed)
	}
}

// setHealth records whether a server and its DHCP server answer.
func setHealth(role string, up bool) {
	value := 0.0
	if up {
		value = 1
	}
	metrics.GetOrCreateGauge(fmt.Sprintf(`kea_operator_server_health{server=%q,type="dhcp4"}`, role), nil).Set(value)
}

// CountFailover counts a reservation that only the secondary server has.
func CountFailover() { metrics.GetOrCreateCounter(`kea_operator_failovers_total`).Inc() }

// countReservation counts reservations by whether they are added or removed.
func countReservation(operation string, err error) {
	status := "success"
	if err != nil {
		status = "error"
	}
	metrics.GetOrCreateCounter(fmt.Sprintf(`kea_operator_dhcp_reservations_total{operation=%q,status=%q}`, operation, status)).Inc()
}

func isEmpty(err error) bool { return errors.Is(err, errEmpty) }

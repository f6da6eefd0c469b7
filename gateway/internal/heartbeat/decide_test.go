package heartbeat

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

func parse(t *testing.T, text string) cron.Schedule {
	t.Helper()
	s, err := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// at is a time on Friday, the 1st of May 2026.
func at(t *testing.T, clock string) time.Time {
	t.Helper()
	if clock == "" {
		return time.Time{}
	}
	parsed, err := time.Parse("2006-01-02 15:04:05", "2026-05-"+clock)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const tenSeconds, workdays = "*/10 * * * * *", "0 8 * * 1-5"
	for name, tc := range map[string]struct {
		reason, schedule, last, expected, now, want string
	}{
		"Heard":        {"the last heartbeat is recent", tenSeconds, "01 10:00:00", "01 09:00:00", "01 10:00:09", inventory.Healthy},
		"TwoMissing":   {"one may be late, and one lost", tenSeconds, "01 10:00:00", "01 09:00:00", "01 10:00:29", inventory.Healthy},
		"AtTheLimit":   {"three intervals are not yet longer than three", tenSeconds, "01 10:00:02", "01 09:00:00", "01 10:00:32", inventory.Healthy},
		"Silent":       {"three intervals are over", tenSeconds, "01 10:00:02", "01 09:00:00", "01 10:00:33", inventory.Unhealthy},
		"Restarted":    {"no replica ran that could receive a heartbeat", tenSeconds, "01 09:00:00", "01 10:00:00", "01 10:00:20", inventory.Unknown},
		"StillSilent":  {"after a restart three intervals have passed", tenSeconds, "01 09:00:00", "01 10:00:00", "01 10:00:31", inventory.Unhealthy},
		"New":          {"the installation has just begun", tenSeconds, "", "01 10:00:00", "01 10:00:05", inventory.Unknown},
		"NeverHeard":   {"the Broker has never delivered", tenSeconds, "", "01 10:00:00", "01 10:05:00", inventory.Unhealthy},
		"OtherReplica": {"a replica that starts sees the Lease that another has renewed", tenSeconds, "01 10:00:00", "01 10:00:01", "01 10:00:02", inventory.Healthy},
		"Weekend":      {"no round is due before Monday", workdays, "01 08:00:00", "01 07:00:00", "04 07:59:59", inventory.Healthy},
		"LateMonday":   {"the schedule's third time has not come", workdays, "01 08:00:00", "01 07:00:00", "05 12:00:00", inventory.Healthy},
		"Midweek":      {"Monday, Tuesday and Wednesday were missed", workdays, "01 08:00:00", "01 08:00:00", "06 08:00:01", inventory.Unhealthy},
	} {
		if got := decide(parse(t, tc.schedule), at(t, tc.last), at(t, tc.expected), at(t, tc.now)); got != tc.want {
			t.Errorf("%s: %s, want %s: %s", name, got, tc.want, tc.reason)
		}
	}
}

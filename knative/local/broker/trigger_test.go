package broker

import (
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	duckeventing "knative.dev/eventing/pkg/apis/duck/v1"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/eventing/pkg/eventfilter"
	"knative.dev/eventing/pkg/eventfilter/subscriptionsapi"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"sigs.k8s.io/yaml"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	e := newEvent("1", withType("dev.knative.apiserver.ref.add"), withSubject("/apis/vitistack.io/v1alpha1/namespaces/default/machines/m1"),
		withExtension("kind", "Machine"), withExtension("name", "m1"), withExtension("size", 3))
	cases := map[string]struct {
		reason string
		spec   string
		want   bool
	}{
		"None":             {reason: "without a filter every event passes", want: true},
		"Attributes":       {reason: "all attributes must be equal", spec: "filter: {attributes: {type: dev.knative.apiserver.ref.add, kind: Machine}}", want: true},
		"AttributesAny":    {reason: "an empty value is any value", spec: `filter: {attributes: {kind: ""}}`, want: true},
		"AttributesAbsent": {reason: "an empty value matches any value of an existing attribute", spec: `filter: {attributes: {nothing: ""}}`, want: false},
		"AttributesOther":  {reason: "one different attribute is enough", spec: "filter: {attributes: {type: dev.knative.apiserver.ref.add, kind: Cluster}}", want: false},
		"FiltersWin":       {reason: "filters replace the older filter", spec: "filter: {attributes: {kind: Cluster}}\nfilters: [{exact: {kind: Machine}}]", want: true},
		"Exact":            {reason: "exact", spec: "filters: [{exact: {kind: Machine, name: m1}}]", want: true},
		"ExactOther":       {reason: "exact, other value", spec: "filters: [{exact: {kind: Machine, name: m2}}]", want: false},
		"Prefix":           {reason: "prefix", spec: "filters: [{prefix: {type: dev.knative.apiserver.ref.}}]", want: true},
		"PrefixOther":      {reason: "prefix, other value", spec: "filters: [{prefix: {type: io.}}]", want: false},
		"Suffix":           {reason: "suffix", spec: "filters: [{suffix: {type: .add}}]", want: true},
		"SuffixOther":      {reason: "suffix, other value", spec: "filters: [{suffix: {type: .delete}}]", want: false},
		"All":              {reason: "all filters must match", spec: "filters: [{all: [{exact: {kind: Machine}}, {suffix: {type: .delete}}]}]", want: false},
		"Any":              {reason: "one filter must match", spec: "filters: [{any: [{exact: {kind: Cluster}}, {exact: {kind: Machine}}]}]", want: true},
		"AnyNone":          {reason: "no filter matches", spec: "filters: [{any: [{exact: {kind: Cluster}}, {exact: {kind: Network}}]}]", want: false},
		"Not":              {reason: "not", spec: "filters: [{not: {exact: {kind: Cluster}}}]", want: true},
		"NotMatching":      {reason: "not, with a match", spec: "filters: [{not: {exact: {kind: Machine}}}]", want: false},
		"List":             {reason: "a list of filters is a conjunction", spec: "filters: [{exact: {kind: Machine}}, {exact: {name: m2}}]", want: false},
		"CESQL":            {reason: "cesql", spec: `filters: [{cesql: "kind IN ('Machine', 'Cluster') AND name LIKE 'm%' AND size > 2"}]`, want: true},
		"CESQLOther":       {reason: "cesql, false", spec: `filters: [{cesql: "size > 3"}]`, want: false},
		"CESQLAbsent":      {reason: "an expression that fails matches nothing", spec: `filters: [{cesql: "absent = 'x'"}]`, want: false},
		"CESQLNumber":      {reason: "an expression without a boolean result matches nothing", spec: `filters: [{cesql: "size + 1"}]`, want: false},
		"Nested":           {reason: "dialects nest", spec: "filters: [{any: [{all: [{prefix: {type: dev.}}, {not: {suffix: {type: .delete}}}]}, {exact: {kind: Cluster}}]}]", want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trigger := compile(t, "t", "subscriber: {uri: http://localhost/}\n"+tc.spec)
			if got := trigger.matches(t.Context(), e); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

// TestLeavesAgainstKnative compares the filters of attributes with Knative's own.
func TestLeavesAgainstKnative(t *testing.T) {
	t.Parallel()
	v1 := newEvent("1", withSubject("here"), withExtension("kind", "Machine"), withExtension("size", 3), withExtension("schemaurl", "x"))
	v1.SetTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	v03 := v1.Clone()
	v03.SetSpecVersion(event.CloudEventsVersionV03)
	names := []string{"specversion", "type", "source", "subject", "id", "time", "dataschema", "schemaurl", "datacontenttype",
		"datamediatype", "datacontentencoding", "kind", "Kind", "size", "absent"}
	values := []string{"Machine", "Mach", "chine", "3", "1", "1.0", "thing.changed", "here", "x", "/test", "application/json", "2026-01-02T03:04:05Z", "true"}
	for _, e := range []event.Event{v1, v03, newEvent("2")} {
		for _, name := range names {
			for _, value := range values {
				wanted := map[string]string{name: value}
				for dialect, pair := range map[string]struct {
					spec    eventingv1.SubscriptionsAPIFilter
					knative func(map[string]string) (eventfilter.Filter, error)
				}{
					"exact":  {eventingv1.SubscriptionsAPIFilter{Exact: wanted}, subscriptionsapi.NewExactFilter},
					"prefix": {eventingv1.SubscriptionsAPIFilter{Prefix: wanted}, subscriptionsapi.NewPrefixFilter},
					"suffix": {eventingv1.SubscriptionsAPIFilter{Suffix: wanted}, subscriptionsapi.NewSuffixFilter},
				} {
					ours, err := newDialect(pair.spec)
					if err != nil {
						t.Fatal(err)
					}
					theirs, err := pair.knative(wanted)
					if err != nil {
						t.Fatal(err)
					}
					if want, got := theirs.Filter(t.Context(), e), ours.Filter(t.Context(), e); got != want {
						t.Errorf("%s %s=%s of an event of version %s: got %s, Knative says %s", dialect, name, value, e.SpecVersion(), got, want)
					}
				}
			}
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		spec   string
		valid  bool
	}{
		"Valid":         {reason: "everything that Knative accepts is accepted", spec: "broker: b\nsubscriber: {uri: http://x/}\ndelivery: {retry: 3, backoffPolicy: linear, backoffDelay: PT1S, timeout: PT5S}", valid: true},
		"TwoDialects":   {reason: "a filter has one dialect", spec: "broker: b\nsubscriber: {uri: http://x/}\nfilters: [{exact: {kind: A}, prefix: {kind: B}}]"},
		"Attribute":     {reason: "attribute names are lower case", spec: "broker: b\nsubscriber: {uri: http://x/}\nfilters: [{exact: {Kind: A}}]"},
		"CESQL":         {reason: "an expression must parse", spec: "broker: b\nsubscriber: {uri: http://x/}\nfilters: [{cesql: 'kind ='}]"},
		"Nested":        {reason: "nested filters are checked", spec: "broker: b\nsubscriber: {uri: http://x/}\nfilters: [{any: [{not: {cesql: '('}}]}]"},
		"EmptyValue":    {reason: "Knative ignores such a filter, so that every event passes", spec: "broker: b\nsubscriber: {uri: http://x/}\nfilters: [{exact: {kind: ''}}]"},
		"EmptyFilter":   {reason: "Knative ignores such a filter, so that every event passes", spec: "broker: b\nsubscriber: {uri: http://x/}\nfilters: [{not: {}}]"},
		"NoBroker":      {reason: "a Trigger requires a Broker", spec: "subscriber: {uri: http://x/}"},
		"NoSubscriber":  {reason: "a Trigger requires a subscriber", spec: "broker: b"},
		"BackoffDelay":  {reason: "durations are ISO 8601", spec: "broker: b\nsubscriber: {uri: http://x/}\ndelivery: {backoffDelay: 1s}"},
		"RetryAfterMax": {reason: "the feature is off in Knative by default", spec: "broker: b\nsubscriber: {uri: http://x/}\ndelivery: {retryAfterMax: PT1S}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trigger := &eventingv1.Trigger{}
			if err := yaml.Unmarshal([]byte(tc.spec), &trigger.Spec); err != nil {
				t.Fatal(err)
			}
			_, err := Compile(trigger, &eventingv1.Broker{}, literal)
			if (err == nil) != tc.valid {
				t.Errorf("%s: got error %v", tc.reason, err)
			}
		})
	}
}

func TestDeliverySpec(t *testing.T) {
	t.Parallel()
	retry := func(n int32) *int32 { return &n }
	to := func(host string) *duckv1.Destination { return &duckv1.Destination{URI: apis.HTTP(host)} }
	cases := map[string]struct {
		reason          string
		broker, trigger *duckeventing.DeliverySpec
		wantRetries     int
		wantDeadLetter  string
	}{
		"Neither":     {reason: "there are no retries", wantRetries: 0},
		"Broker":      {reason: "the Broker's spec is the default", broker: &duckeventing.DeliverySpec{Retry: retry(5), DeadLetterSink: to("dead")}, wantRetries: 5, wantDeadLetter: "http://dead"},
		"Trigger":     {reason: "the Trigger's spec replaces it", broker: &duckeventing.DeliverySpec{Retry: retry(5)}, trigger: &duckeventing.DeliverySpec{DeadLetterSink: to("mine")}, wantRetries: 0, wantDeadLetter: "http://mine"},
		"DeadLetters": {reason: "the dead letter sink is inherited", broker: &duckeventing.DeliverySpec{Retry: retry(5), DeadLetterSink: to("dead")}, trigger: &duckeventing.DeliverySpec{Retry: retry(2)}, wantRetries: 2, wantDeadLetter: "http://dead"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trigger := &eventingv1.Trigger{Spec: eventingv1.TriggerSpec{Broker: "b", Subscriber: *to("s"), Delivery: tc.trigger}}
			compiled, err := Compile(trigger, &eventingv1.Broker{Spec: eventingv1.BrokerSpec{Delivery: tc.broker}}, literal)
			if err != nil {
				t.Fatal(err)
			}
			deadLetter := ""
			if compiled.deadLetter != nil {
				deadLetter = compiled.deadLetter.String()
			}
			if diff := cmp.Diff([]any{tc.wantRetries, tc.wantDeadLetter}, []any{compiled.retries, deadLetter}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOrderKey(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		a, b   event.Event
		same   bool
	}{
		"PartitionKey": {reason: "the partition key orders events", a: newEvent("1", withExtension("partitionkey", "x")), b: newEvent("2", withExtension("partitionkey", "x")), same: true},
		"Subject":      {reason: "the subject orders events", a: newEvent("1", withSubject("x")), b: newEvent("2", withSubject("x")), same: true},
		"NoSubject":    {reason: "events with neither are not ordered", a: newEvent("1", withSubject("")), b: newEvent("2", withSubject("")), same: false},
		"Kinds":        {reason: "a key and a subject of the same text are different keys", a: newEvent("1", withExtension("partitionkey", "x")), b: newEvent("2", withSubject("x")), same: false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := orderKey(tc.a) == orderKey(tc.b); got != tc.same {
				t.Errorf("%s: same key is %v", tc.reason, got)
			}
		})
	}
}

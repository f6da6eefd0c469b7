package broker

import (
	"context"
	"errors"

	"github.com/cloudevents/sdk-go/v2/event"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/eventing/pkg/eventfilter"
	"knative.dev/eventing/pkg/eventfilter/attributes"
	"knative.dev/eventing/pkg/eventfilter/subscriptionsapi"
)

// newFilter follows Knative's broker: filters, when there are any, replace the older filter.
func newFilter(spec eventingv1.TriggerSpec) (eventfilter.Filter, error) {
	switch {
	case len(spec.Filters) > 0:
		filters, err := newFilters(spec.Filters)
		return all(filters), err
	case spec.Filter != nil:
		return attributes.NewAttributesFilter(spec.Filter.Attributes), nil
	default:
		return subscriptionsapi.NewNoFilter(), nil
	}
}

func newFilters(specs []eventingv1.SubscriptionsAPIFilter) ([]eventfilter.Filter, error) {
	filters := make([]eventfilter.Filter, len(specs))
	for i, spec := range specs {
		var err error
		if filters[i], err = newDialect(spec); err != nil {
			return nil, err
		}
	}
	return filters, nil
}

// newDialect makes one filter. The leaves are Knative's; its conjunction and disjunction reorder themselves in a
// goroutine, which races with their use.
func newDialect(spec eventingv1.SubscriptionsAPIFilter) (eventfilter.Filter, error) {
	switch {
	case len(spec.Exact) > 0:
		return subscriptionsapi.NewExactFilter(spec.Exact)
	case len(spec.Prefix) > 0:
		return subscriptionsapi.NewPrefixFilter(spec.Prefix)
	case len(spec.Suffix) > 0:
		return subscriptionsapi.NewSuffixFilter(spec.Suffix)
	case len(spec.All) > 0:
		filters, err := newFilters(spec.All)
		return all(filters), err
	case len(spec.Any) > 0:
		filters, err := newFilters(spec.Any)
		return either(filters), err
	case spec.Not != nil:
		filter, err := newDialect(*spec.Not)
		return subscriptionsapi.NewNotFilter(filter), err
	case spec.CESQL != "":
		return subscriptionsapi.NewCESQLFilter(spec.CESQL)
	default:
		return nil, errors.New("a filter is empty: write exact, prefix, suffix, all, any, not or cesql")
	}
}

// all passes when each of its filters does.
type all []eventfilter.Filter

// Filter implements eventfilter.Filter.
func (a all) Filter(ctx context.Context, e event.Event) eventfilter.FilterResult {
	for _, filter := range a {
		if filter.Filter(ctx, e) == eventfilter.FailFilter {
			return eventfilter.FailFilter
		}
	}
	return eventfilter.PassFilter
}

// Cleanup implements eventfilter.Filter.
func (a all) Cleanup() {}

// either passes when one of its filters does.
type either []eventfilter.Filter

// Filter implements eventfilter.Filter.
func (f either) Filter(ctx context.Context, e event.Event) eventfilter.FilterResult {
	for _, filter := range f {
		if filter.Filter(ctx, e) == eventfilter.PassFilter {
			return eventfilter.PassFilter
		}
	}
	return eventfilter.FailFilter
}

// Cleanup implements eventfilter.Filter.
func (f either) Cleanup() {}

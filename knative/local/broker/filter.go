package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/eventing/pkg/eventfilter"
	"knative.dev/eventing/pkg/eventfilter/attributes"
	"knative.dev/eventing/pkg/eventfilter/subscriptionsapi"
)

// newFilter follows Knative's broker: filters, if there are any, replace the older filter.
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

// newDialect returns one filter. Knative's conjunction and disjunction reorder themselves in a goroutine, which races with their use, and its leaves
// copy all extensions of the event to read one.
func newDialect(spec eventingv1.SubscriptionsAPIFilter) (eventfilter.Filter, error) {
	switch {
	case len(spec.Exact) > 0:
		return newLeaf(spec.Exact, func(value, wanted string) bool { return value == wanted })
	case len(spec.Prefix) > 0:
		return newLeaf(spec.Prefix, strings.HasPrefix)
	case len(spec.Suffix) > 0:
		return newLeaf(spec.Suffix, strings.HasSuffix)
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

// leaf passes if each attribute exists and matches.
type leaf []condition

type condition struct {
	name, wanted string
	extension    bool
	fits         func(value, wanted string) bool
}

func newLeaf(wanted map[string]string, fits func(value, wanted string) bool) (eventfilter.Filter, error) {
	var l leaf
	for name, value := range wanted {
		if name == "" || value == "" {
			return nil, errors.New("an attribute of a filter and its value can't be empty")
		}
		_, standard := attributes.LookupAttribute(event.New(), name) // an event without extensions has standard attributes only
		l = append(l, condition{name: name, wanted: value, extension: !standard, fits: fits})
	}
	return l, nil
}

// Filter implements eventfilter.Filter.
func (l leaf) Filter(_ context.Context, e event.Event) eventfilter.FilterResult {
	for _, c := range l {
		lookUp := attributes.LookupAttribute
		if c.extension {
			lookUp = extension
		}
		value, ok := lookUp(e, c.name)
		if !ok {
			return eventfilter.FailFilter
		}
		text, ok := value.(string)
		if !ok {
			text = fmt.Sprint(value)
		}
		if !c.fits(text, c.wanted) {
			return eventfilter.FailFilter
		}
	}
	return eventfilter.PassFilter
}

// Cleanup implements eventfilter.Filter.
func (l leaf) Cleanup() {}

// extension returns an extension without a copy of all.
func extension(e event.Event, name string) (any, bool) {
	if v1, ok := e.Context.(*event.EventContextV1); ok {
		value, ok := v1.Extensions[name]
		return value, ok
	}
	value, ok := e.Extensions()[name]
	return value, ok
}

// all passes if each of its filters does.
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

// either passes if one of its filters does.
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

package main

import (
	"cmp"
	"slices"

	"github.com/vitistack/stack/gateway/state"
)

// others is the label of what is beyond the bound of a metric's series.
const others = "_other"

func countClusters(s *state.Snapshot, add addSeries) {
	type series struct{ status, kind string }
	counts := map[series]int{}
	for _, i := range s.Collection(state.TopicClusters).Items {
		counts[series{i.Status, i.Attribute("type")}]++
	}
	for _, status := range []string{state.StatusActive, state.StatusInactive, state.StatusFailed} {
		for _, kind := range []string{"kubernetes", "proxmox", "talos"} {
			// The series of the usual type are there from the start, so that a first
			// failure is an increase.
			if n := counts[series{status, kind}]; n > 0 || kind == "talos" {
				add(float64(n), status, kind)
			}
		}
	}
}

func countMachines(s *state.Snapshot, most int, add addSeries) {
	type series struct{ operator, status, cluster string }
	counts := map[series]int{}
	clusters := map[state.Key]string{}
	var order []series
	for _, i := range s.Collection(state.TopicMachines).Items {
		key := state.Key{Namespace: i.Namespace, Name: i.Attribute("cluster")}
		if key.Name == "" {
			key = state.Key{}
		}
		label, known := clusters[key]
		if !known {
			switch {
			case key.Name == "":
			case len(clusters) >= most:
				label = others
			default:
				label = key.Namespace + "/" + key.Name
			}
			if label != others {
				clusters[key] = label
			}
		}
		at := series{i.Attribute("operator"), i.Status, label}
		if counts[at] == 0 {
			order = append(order, at)
		}
		counts[at]++
	}
	for _, at := range order {
		add(float64(counts[at]), at.operator, at.status, at.cluster)
	}
}

func countOperators(s *state.Snapshot, add addSeries) {
	for _, i := range s.Collection(state.TopicOperators).Items {
		for _, status := range []string{state.Healthy, state.Degraded, state.Unhealthy, state.Unreachable} {
			value := 0.0
			if i.Status == status {
				value = 1
			}
			add(value, i.ID, status)
		}
	}
}

// mostReasons bounds the reasons of a layer that have series of their own. The
// functions have a few each; anybody could write others into a status.
const mostReasons = 50

func countWaiting(s *state.Snapshot, add addSeries) {
	for _, topic := range state.Topics {
		layer, ok := layerOf[topic]
		if !ok {
			continue
		}
		waiting := s.Collection(topic).Tally.Waiting
		reasons := make([]string, 0, len(waiting))
		for reason := range waiting {
			reasons = append(reasons, reason)
		}
		slices.SortFunc(reasons, func(a, b string) int {
			return cmp.Or(waiting[b]-waiting[a], cmp.Compare(a, b))
		})
		rest := 0
		for n, reason := range reasons {
			if n < mostReasons {
				add(float64(waiting[reason]), layer, reason)
			} else {
				rest += waiting[reason]
			}
		}
		if rest > 0 {
			add(float64(rest), layer, others)
		}
	}
}

func countFree(s *state.Snapshot, most int, add addSeries) {
	told := 0
	var rest int64
	for _, i := range s.Collection(state.TopicNetworks).Items {
		f := i.Object.Facts.(*state.Network)
		switch {
		case !f.Counted:
		case told < most:
			add(float64(f.Free), i.Namespace, i.Name)
			told++
		default:
			rest += f.Free
		}
	}
	if told == most && rest > 0 {
		add(float64(rest), others, others)
	}
}

package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Other is the value of a label beyond the bound of a metric's series.
const Other = "_other"

func countClusters(s *inventory.Snapshot, add addSeries) {
	type series struct{ status, kind string }
	counts := map[series]int{}
	for _, i := range s.Collection(inventory.TopicClusters).Items {
		counts[series{i.Status, i.Attribute("type")}]++
	}
	for _, status := range []string{inventory.StatusActive, inventory.StatusInactive, inventory.StatusFailed} {
		for _, kind := range []string{"kubernetes", string(v1alpha1.ProviderProxmox), backend.Talos} {
			// The series of talos exist from the start, so that the first failure is an increase.
			if n := counts[series{status, kind}]; n > 0 || kind == backend.Talos {
				add(float64(n), status, kind)
			}
		}
	}
}

func countMachines(s *inventory.Snapshot, maxSeries int, add addSeries) {
	type series struct{ operator, status, cluster string }
	counts := map[series]int{}
	clusters := map[inventory.Key]string{}
	var order []series
	for _, i := range s.Collection(inventory.TopicMachines).Items {
		key := inventory.Key{Namespace: i.Namespace, Name: i.Attribute("cluster")}
		if key.Name == "" {
			key = inventory.Key{}
		}
		label, known := clusters[key]
		if !known {
			switch {
			case key.Name == "":
			case len(clusters) >= maxSeries:
				label = Other
			default:
				label = key.Namespace + "/" + key.Name
			}
			if label != Other {
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

func countOperators(s *inventory.Snapshot, add addSeries) {
	for _, i := range s.Collection(inventory.TopicOperators).Items {
		for _, status := range []string{inventory.Healthy, inventory.Degraded, inventory.Unhealthy, inventory.Unreachable} {
			value := 0.0
			if i.Status == status {
				value = 1
			}
			add(value, i.ID, status)
		}
	}
}

// addServers adds whether each server of a backend works. Talos works while some of its nodes answer.
func addServers(s *inventory.Snapshot, add addSeries) {
	for _, server := range s.Servers() {
		up := 0.0
		if server.Status == backend.Healthy || server.Status == backend.Degraded {
			up = 1
		}
		add(up, server.Backend, server.Name)
	}
}

func addLastSeen(s *inventory.Snapshot, add addSeries) {
	for _, server := range s.Servers() {
		if !server.LastSeen.IsZero() {
			add(float64(server.LastSeen.Unix()), server.Backend, server.Name)
		}
	}
}

// addHeartbeats adds whether each dependency with heartbeats works, if that is known.
func addHeartbeats(dependencies []inventory.Dependency, add addSeries) {
	for _, d := range dependencies {
		switch d.Status {
		case inventory.Healthy:
			add(1, d.Kind, d.Name)
		case inventory.Unhealthy:
			add(0, d.Kind, d.Name)
		}
	}
}

func addLastHeartbeats(dependencies []inventory.Dependency, add addSeries) {
	for _, d := range dependencies {
		if !d.LastSeen.IsZero() {
			add(float64(d.LastSeen.UnixMilli())/1000, d.Kind, d.Name)
		}
	}
}

// addBackups adds whether each EtcdBackup is Ready, up to a bound.
func addBackups(s *inventory.Snapshot, maxSeries int, add addSeries) {
	for _, b := range s.Backups()[:min(len(s.Backups()), maxSeries)] {
		ready := 0.0
		if b.Ready {
			ready = 1
		}
		add(ready, b.Namespace, b.Name)
	}
}

// addLastBackups adds the newest snapshot of each EtcdBackup that takes more of them.
func addLastBackups(s *inventory.Snapshot, maxSeries int, add addSeries) {
	for _, b := range s.Backups()[:min(len(s.Backups()), maxSeries)] {
		if b.Recurs && !b.LastSuccess.IsZero() {
			add(float64(b.LastSuccess.Unix()), b.Namespace, b.Name)
		}
	}
}

// countFollowers counts the clusters of each ClusterTemplate, up to a bound, by their state in the rollout. All states of a
// ClusterTemplate have series from the start, so that the first cluster that stops a rollout is an increase.
func countFollowers(s *inventory.Snapshot, maxSeries int, add addSeries) {
	type series struct {
		name  string
		state template.State
	}
	counts := map[series]int{}
	for _, i := range s.Collection(inventory.TopicClusters).Items {
		if at := inventory.FollowingOf(i); at != nil {
			counts[series{at.Name, at.State}]++
		}
	}
	templates := s.Collection(inventory.TopicTemplates).Items
	for _, i := range templates[:min(len(templates), maxSeries)] {
		for _, state := range template.States {
			add(float64(counts[series{i.Name, state}]), i.Name, string(state))
		}
	}
}

// maxReasons bounds the reasons of a layer that have series of their own. The
// functions use a few each, but a status may contain any reason.
const maxReasons = 50

// overdue is the time after which an object that is not ready has waited too long.
const overdue = time.Hour

func countWaiting(s *inventory.Snapshot, add addSeries) {
	addReasons(func(topic inventory.Topic) map[string]int { return s.Collection(topic).Tally.Waiting }, add)
}

func countOverdue(s *inventory.Snapshot, now time.Time, add addSeries) {
	addReasons(func(topic inventory.Topic) map[string]int {
		counts := map[string]int{}
		for _, i := range s.Collection(topic).Items {
			if r := i.Readiness; !r.Ready && !r.Since.IsZero() && now.Sub(r.Since) >= overdue {
				counts[cmp.Or(r.Reason, inventory.UnknownReason)]++
			}
		}
		return counts
	}, add)
}

// addReasons adds the counts of objects by layer and reason, up to a bound.
func addReasons(count func(inventory.Topic) map[string]int, add addSeries) {
	for _, topic := range inventory.Topics {
		layer, ok := layerOf[topic]
		if !ok {
			continue
		}
		waiting := count(topic)
		reasons := make([]string, 0, len(waiting))
		for reason := range waiting {
			reasons = append(reasons, reason)
		}
		slices.SortFunc(reasons, func(a, b string) int {
			return cmp.Or(waiting[b]-waiting[a], cmp.Compare(a, b))
		})
		rest := 0
		for n, reason := range reasons {
			if n < maxReasons {
				add(float64(waiting[reason]), layer, reason)
			} else {
				rest += waiting[reason]
			}
		}
		if rest > 0 {
			add(float64(rest), layer, Other)
		}
	}
}

// countAddresses adds a number of addresses of each network, up to a bound.
func countAddresses(s *inventory.Snapshot, maxSeries int, number func(*inventory.Network) int64, add addSeries) {
	added := 0
	var rest int64
	for _, i := range s.Collection(inventory.TopicNetworks).Items {
		f := i.Object.Facts.(*inventory.Network)
		switch {
		case !f.Counted:
		case added < maxSeries:
			add(float64(number(f)), i.Namespace, i.Name)
			added++
		default:
			rest += number(f)
		}
	}
	if added == maxSeries && rest > 0 {
		add(float64(rest), Other, Other)
	}
}

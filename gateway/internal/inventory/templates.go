package inventory

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Template is a ClusterTemplate.
type Template struct {
	Version      string
	TalosVersion string
	// Revision is the hash of the fields that clusters get.
	Revision string
	Rollout  v1alpha1.TemplateRollout
	// Status is without conditions.
	Status v1alpha1.ClusterTemplateStatus
}

func fromTemplate(t *v1alpha1.ClusterTemplate) (*Object, error) {
	facts := &Template{Revision: template.Revision(t.Spec.Cluster), Status: *t.Status.DeepCopy()}
	facts.Status.Conditions = nil
	if t.Spec.Rollout != nil {
		facts.Rollout = *t.Spec.Rollout.DeepCopy()
	}
	if topology := t.Spec.Cluster.Topology; topology != nil {
		facts.Version = string(topology.Version)
	}
	if talos := t.Spec.Cluster.Talos; talos != nil {
		facts.TalosVersion = talos.Version
	}
	o, err := newObject(KindTemplate, v1alpha1.GroupVersion.String(), &t.ObjectMeta, facts, t.Spec, t.Status)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &t.ObjectMeta, t.Status.Conditions)
	return o, nil
}

type templateJSON struct {
	head
	Version      string `json:"version,omitempty"`
	TalosVersion string `json:"talosVersion,omitempty"`
	Revision     string `json:"revision"`
	// Paused reports whether the rollout starts no further cluster.
	Paused        bool       `json:"paused,omitempty"`
	MaxConcurrent int32      `json:"maxConcurrent"`
	Waves         []waveJSON `json:"waves"`
	Clusters      int32      `json:"clusters"`
	Current       int32      `json:"currentClusters"`
	Updating      int32      `json:"updatingClusters"`
	Waiting       int32      `json:"waitingClusters"`
	// Wave is the one in progress, or the one whose pause passes. WaveFinished is when its last cluster was done,
	// and NextWave when the next wave starts.
	Wave         string         `json:"wave,omitempty"`
	WaveFinished time.Time      `json:"waveFinishedAt,omitzero"`
	NextWave     time.Time      `json:"nextWaveAt,omitzero"`
	Overrides    []overrideJSON `json:"overrides,omitempty"`
	tail
}

// waveJSON is a wave of a rollout.
type waveJSON struct {
	Name          string            `json:"name"`
	MatchLabels   map[string]string `json:"matchLabels"`
	MaxConcurrent int32             `json:"maxConcurrent"`
	PauseAfter    string            `json:"pauseAfter,omitempty"`
}

// overrideJSON has the fields of a template that a cluster has in its own manifest.
type overrideJSON struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Fields    []string `json:"fields"`
}

func templateItem(o *Object) *Item {
	i := itemOf(TopicTemplates, o, templateStatus(o), o.Readiness.Reason, o.Facts.(*Template))
	i.JSON = encode(templateModel(i))
	return i
}

func templateModel(i *Item) templateJSON {
	f := i.Object.Facts.(*Template)
	s := &f.Status
	out := templateJSON{
		head: i.head(), tail: i.tail(), Version: f.Version, TalosVersion: f.TalosVersion, Revision: f.Revision,
		Paused: f.Rollout.Paused, MaxConcurrent: max(f.Rollout.MaxConcurrent, 1), Waves: []waveJSON{},
		Clusters: s.Clusters, Current: s.CurrentClusters, Updating: s.UpdatingClusters, Waiting: s.WaitingClusters, Wave: s.Wave,
	}
	for _, w := range f.Rollout.Waves {
		wave := waveJSON{Name: w.Name, MatchLabels: w.Selector.MatchLabels, MaxConcurrent: w.MaxConcurrent}
		if wave.MaxConcurrent == 0 {
			wave.MaxConcurrent = out.MaxConcurrent
		}
		if w.PauseAfter != nil {
			wave.PauseAfter = w.PauseAfter.Duration.String()
		}
		out.Waves = append(out.Waves, wave)
	}
	if at := s.WaveFinishedTime; at != nil {
		out.WaveFinished = at.UTC()
	}
	if at := s.NextCheckTime; at != nil {
		out.NextWave = at.UTC()
	}
	for _, v := range s.Overrides {
		out.Overrides = append(out.Overrides, overrideJSON{v.Namespace, v.Name, v.Fields})
	}
	return out
}

// templateDetailJSON is a ClusterTemplate with its clusters.
type templateDetailJSON struct {
	templateJSON
	Members []memberJSON `json:"members"`
}

// memberJSON is a cluster of a ClusterTemplate.
type memberJSON struct {
	ID        string         `json:"id"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Wave      string         `json:"wave,omitempty"`
	State     template.State `json:"state"`
	Refusal   string         `json:"refusal,omitempty"`
	Version   string         `json:"version,omitempty"`
	Ready     bool           `json:"ready"`
	Reason    string         `json:"reason,omitempty"`
	Message   string         `json:"message,omitempty"`
}

// TemplateDetail returns the item of a ClusterTemplate as JSON, with the clusters that name it, in the order of the waves.
func TemplateDetail(i *Item, s *Snapshot) []byte {
	out := templateDetailJSON{templateJSON: templateModel(i), Members: []memberJSON{}}
	for _, c := range s.Collection(TopicClusters).Items {
		if at := FollowingOf(c); at != nil && at.Name == i.Name {
			out.Members = append(out.Members, memberJSON{
				ID: c.ID, Namespace: c.Namespace, Name: c.Name, Wave: at.Wave, State: at.State, Refusal: at.Refusal, Version: c.Attribute("version"),
				Ready: c.Readiness.Ready, Reason: c.Readiness.Reason, Message: c.Readiness.Message,
			})
		}
	}
	order := func(m memberJSON) int {
		n := slices.IndexFunc(out.Waves, func(w waveJSON) bool { return w.Name == m.Wave })
		if n < 0 {
			return len(out.Waves)
		}
		return n
	}
	slices.SortStableFunc(out.Members, func(a, b memberJSON) int { return cmp.Compare(order(a), order(b)) })
	return encode(out)
}

// templateStatus returns the status of a ClusterTemplate from its readiness. A rollout that waits for a person has failed.
func templateStatus(o *Object) string {
	switch {
	case o.Deleting:
		return StatusUnknown
	case o.Readiness.Ready:
		return StatusRunning
	case o.Readiness.Reason == template.ReasonStopped:
		return StatusFailed
	default:
		return StatusPending
	}
}

func (f *Template) attribute(name string) string {
	switch name {
	case "version":
		return f.Version
	case "talosVersion":
		return f.TalosVersion
	case "wave":
		return f.Status.Wave
	case "clusters":
		return strconv.Itoa(int(f.Status.Clusters))
	case "waitingClusters":
		return strconv.Itoa(int(f.Status.WaitingClusters))
	}
	return ""
}

// FollowerJSON is where a cluster is in the rollout of its ClusterTemplate.
type FollowerJSON struct {
	Name string `json:"name"`
	// Wave is empty for a cluster that no wave selects, or whose ClusterTemplate does not exist.
	Wave string `json:"wave,omitempty"`
	// State is empty if the ClusterTemplate does not exist.
	State template.State `json:"state,omitempty"`
	// Refusal is why the API server refuses the fields of the template for the cluster.
	Refusal string `json:"refusal,omitempty"`
}

// following returns where a cluster is in the rollout of the ClusterTemplate that it names, or nil if it names none.
func (s *objectSet) following(f *Cluster) *FollowerJSON {
	if f.Template == "" {
		return nil
	}
	out := &FollowerJSON{Name: f.Template}
	o := s.byKind[KindTemplate][Key{Name: f.Template}]
	if o == nil {
		return out
	}
	t := o.Facts.(*Template)
	out.State = template.StateOf(f.Member, f.Template, t.Revision, t.Status.Updating)
	if wave := template.WaveOf(t.Rollout.Waves, f.Member.Labels); wave < len(t.Rollout.Waves) {
		out.Wave = t.Rollout.Waves[wave].Name
	}
	if i := slices.IndexFunc(t.Status.Updating, func(u v1alpha1.TemplateUpdate) bool { return u.UID == f.Member.UID }); i >= 0 {
		out.Refusal = t.Status.Updating[i].Message
	}
	return out
}

// FollowingOf returns where a cluster is in the rollout of the ClusterTemplate that it names, or nil if it names none.
func FollowingOf(i *Item) *FollowerJSON {
	if f, ok := i.facts.(*clusterFacts); ok {
		return f.following
	}
	return nil
}

// attribute returns an attribute of a cluster. The cluster may follow no ClusterTemplate.
func (f *FollowerJSON) attribute(name string) string {
	if f == nil {
		return ""
	}
	switch name {
	case "clusterTemplate":
		return f.Name
	case "wave":
		return f.Wave
	case "rollout":
		return string(f.State)
	}
	return ""
}

// markFollowers marks the clusters that name a ClusterTemplate which has changed.
func (c *changeSet) markFollowers() {
	if len(c.before[KindTemplate]) == 0 {
		return
	}
	for key, o := range c.objects.byKind[KindCluster] {
		if _, ok := c.before[KindTemplate][Key{Name: o.Facts.(*Cluster).Template}]; ok {
			c.dependents[KindCluster][key] = struct{}{}
		}
	}
}
